"""What a few numbers can say: intervals, differences, verdicts."""
