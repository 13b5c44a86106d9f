"""QAIRT runtimes: add, fetch, scan, and choose the files a target needs."""
