"""Comparison of two groups of runs: conditions, changes, their certainty, and the operations."""
