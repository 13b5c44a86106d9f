"""Pictures of letters for a terminal."""
