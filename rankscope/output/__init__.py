"""Results as text, pages, pictures and traces. Nothing here computes across ranks or prints."""
