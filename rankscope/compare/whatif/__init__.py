"""The run played again with one thing changed: what that would save."""
