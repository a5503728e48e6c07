"""The command line of rankscope."""
