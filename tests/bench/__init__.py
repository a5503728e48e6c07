"""Measurements that decided something, to be run by hand."""
