"""From facts and wanted state to actions, and the scripts that carry them out."""
