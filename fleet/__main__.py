"""The entry point of `python -m fleet`."""

from fleet.cli.entry import main

main()
