"""Tests of the ladder of `fleet selftest`."""
