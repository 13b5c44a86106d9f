"""Gates before a run, repeats, and what is to be said of the conditions of a run."""
