"""Many runs: which piece of hardware is slow again and again. See METHOD.md#fleet."""
