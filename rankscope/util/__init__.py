"""Helpers that know nothing of profiles: safe names, whole files."""
