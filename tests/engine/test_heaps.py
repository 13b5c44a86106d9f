"""Threads share heaps: in a process of its own, because it cannot be taken back."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# 24 threads at once, each with small blocks of its own; how many heaps came to be.
COUNT = """
import sys, threading
from fleet.engine.pool import few_heaps
if sys.argv[1] == "few":
    assert few_heaps()
go = threading.Barrier(25)
kept = []
def work():
    go.wait()
    kept.append([bytes(2000) for _ in range(500)])
    go.wait()
threads = [threading.Thread(target=work) for _ in range(24)]
for one in threads: one.start()
go.wait(); go.wait()
import ctypes
ctypes.CDLL(None).malloc_stats()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library than glibc")
def test_threads_share_two_heaps() -> None:
    heaps = {}
    for how in ("few", "many"):
        argv = [sys.executable, "-c", COUNT, how]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
        heaps[how] = done.stderr.count("Arena ")
    assert heaps["few"] <= 2 < heaps["many"]
