"""Numbers of one rank: method sections 3 to 5, and its side of every collective."""
