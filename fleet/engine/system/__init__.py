"""Changes the system below the releases, and undoes the changes."""
