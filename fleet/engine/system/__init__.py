"""Changes of the system below the releases, and their undo."""
