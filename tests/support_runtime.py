"""Real QAIRT runtimes for tests, fetched once into a cache folder that outlives the run.

Nothing of Qualcomm's is in this repository: the first run downloads the wheels (about 270 MB
for all tests), later ones start from the cache. Delete the cache folder to start cold.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleet.model.errors import RuntimeStoreError
from fleet.model.runtime import Runtime
from fleet.runtimes.stage import file_lock
from fleet.runtimes.store import RuntimeStore
from tests import needs

X86 = "x86_64-linux-clang"
ARM = "aarch64-oe-linux-gcc11.2"
NEW, OLD = "2.51.0", "2.50.40"  # onnxruntime-qnn 2.7.0 and 2.6.0
_FETCH_SECONDS = 1800.0  # a parallel test process waits for the first one's download


def cache_root() -> Path:
    """`$FLEET_TEST_CACHE`, else `$XDG_CACHE_HOME/fleet/test-runtimes`."""
    own = os.environ.get("FLEET_TEST_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(own or f"{base}/fleet/test-runtimes").expanduser()


def cached_store() -> RuntimeStore:
    """The store of the cache; what is in it must not be changed by a test."""
    return RuntimeStore(cache_root() / "runtimes")


def cached_runtime(version: str = NEW, target: str = X86) -> Runtime:
    """A runtime that has `target`, fetched when the cache lacks it.

    Without network and cache the test is skipped; FLEET_REQUIRE_QAIRT=1 makes that a failure.
    """
    if target == X86:
        needs.library("libatomic.so.1", "libatomic1")  # the libraries of QAIRT want it
    store = cached_store()
    with file_lock(cache_root() / "fetch.lock", _FETCH_SECONDS):
        try:
            return store.fetch(version, target=target)
        except RuntimeStoreError as error:
            if "pip could not download" in error.message and not os.environ.get(
                "FLEET_REQUIRE_QAIRT"
            ):
                pytest.skip(f"QAIRT {version} is not in the cache: {error.message}")
            raise
