"""Runs the deployed model: one run, measured series, comparisons, answers."""
