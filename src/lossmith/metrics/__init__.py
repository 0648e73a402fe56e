"""Exact metrics over stacks of sets."""
