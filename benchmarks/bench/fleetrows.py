"""fleet's own rows. The one place that knows how fleet is driven."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

from .tools import Command, Push, Tool

CLI = "fleet push"
API = "fleet, Python API"
NAMES = {CLI: "bench-cli", API: "bench-api"}  # of releases: neither is a no-op of the other
CLIENT = Path(__file__).with_name("fleet_client.py")


@cache
def has_push() -> bool:
    """Whether this fleet has the command `push`."""
    argv = [sys.executable, "-m", "fleet", "push", "--help"]
    return subprocess.run(argv, capture_output=True, check=False, timeout=60).returncode == 0


def words(inventory: Path, source: Path, name: str, limit: str = "") -> tuple[str, ...]:
    """The arguments of `fleet push`."""
    only = ("--limit", limit) if limit else ()
    return ("-i", str(inventory), str(source), "--name", name, *only)


def cli(inventory: Path, source: Path, name: str, limit: str = "") -> tuple[str, ...]:
    """The command line; of a fleet without `push`, our client that makes the same release."""
    start = ("-m", "fleet", "push") if has_push() else (str(CLIENT),)
    return (sys.executable, *start, *words(inventory, source, name, limit))


def api(inventory: Path, source: Path, name: str, limit: str = "") -> tuple[str, ...]:
    """The Python API, which says what each part took."""
    return (sys.executable, str(CLIENT), *words(inventory, source, name, limit))


def environment(home: Path) -> dict[str, str]:
    """fleet's state and caches in a folder of ours."""
    return {"FLEET_HOME": str(home), "FLEET_CACHE": str(home / "cache"), "NO_COLOR": "1"}


def _cli(push: Push) -> Command:
    argv = cli(push.wiring.inventory, push.source, NAMES[CLI], push.endpoint.name)
    return Command(argv, environment(push.home))


def _api(push: Push) -> Command:
    argv = api(push.wiring.inventory, push.source, NAMES[API], push.endpoint.name)
    return Command(argv, environment(push.home))


ROWS = (Tool(CLI, _cli, "fleet"), Tool(API, _api, "fleet", main=False))
