"""Plain data: what every other room speaks about. Imports nothing of ours."""
