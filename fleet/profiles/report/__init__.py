"""The report of runs as a single HTML page."""
