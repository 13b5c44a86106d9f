"""The runs of a deployed model: single runs, measured series, comparisons and answers."""
