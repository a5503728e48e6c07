"""What in a phase made a rank slow: evidence that explains an excess."""
