"""QAIRT runtimes on the host: add, fetch, scan, check, choose files for a target."""
