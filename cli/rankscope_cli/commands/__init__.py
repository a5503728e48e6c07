"""One module a command; `main` lists them."""
