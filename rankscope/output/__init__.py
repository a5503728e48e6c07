"""Results → text and bytes. Nothing here computes, prints or opens a file."""
