"""QAIRT runtimes on the host: add, fetch, scan, check, and choose files for a target."""
