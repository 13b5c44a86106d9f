"""Bundles as tests/bundles makes them, and a hash cache for each test."""

from __future__ import annotations

from tests.bundles.conftest import home, make_bundle, make_folder

__all__ = ["home", "make_bundle", "make_folder"]
