"""A PC with Windows that is none: a real sshd in front of the stand-in. Emulated, and says so."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from fleet.device.texts import path_of
from fleet.model.inventory import Host
from tests.transport.sshd import Sshd

HERE = Path(__file__).parent
STANDIN = HERE / "standin.py"
FACTS = HERE.parents[1] / "facts" / "data" / "windows-x-elite.txt"


class Pc(Sshd):
    """`host()` says `os: windows`; nothing of fleet but the transport knows that this is Linux."""

    def host(self, **changes: object) -> Host:
        return super().host(**{"name": "pc", "os": "windows", **changes})


@contextlib.contextmanager
def a_pc(folder: Path, *options: str, facts: Path = FACTS) -> Iterator[Pc]:
    folder.mkdir(parents=True, exist_ok=True)
    server = Pc(folder)
    own = {
        "FLEET_LEASE_DIR": server.leases,
        "STANDIN_BOOTSTRAP": path_of("bootstrap.ps1"),
        "STANDIN_PROBE": path_of("probe.ps1"),
        "STANDIN_FACTS": facts,
        "STANDIN_BASE": folder / "base",
    }
    words = " ".join((sys.executable, "-I", "-S", str(STANDIN), *options))
    pairs = " ".join(f'"{name}={value}"' for name, value in own.items())
    server.start(f"ForceCommand={words}", f"SetEnv={pairs}")
    try:
        yield server
    finally:
        server.stop()
