"""The gates before a run, the repeats, and the findings about the conditions of a run."""
