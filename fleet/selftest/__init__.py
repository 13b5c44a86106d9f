"""The ladder by which a board tells which of our assumptions hold (docs/selftest.md)."""
