"""Who is slow, when, in which phase, and what it costs; or why that cannot be said."""
