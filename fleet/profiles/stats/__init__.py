"""Statistics of runs."""
