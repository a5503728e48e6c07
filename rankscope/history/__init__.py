"""Many runs: two of them compared, or a whole fleet."""
