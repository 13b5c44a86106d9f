"""Where it was measured, and whether the machine was quiet."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .tools import version

BUSY = 0.35  # load for each CPU, above which a figure claims nothing
PYTHON_PEERS = ("paramiko", "fabric", "asyncssh", "ansible-core", "pyinfra", "adbutils")


@dataclass(frozen=True)
class Machine:
    kernel: str
    cpus: int
    cpu: str
    ssh: str
    board_ssh: str
    tools: str
    load: float
    place: str

    @property
    def busy(self) -> bool:
        return self.load > BUSY * self.cpus

    @property
    def line(self) -> str:
        return (
            f"Linux {self.kernel}, {self.cpus} CPUs ({self.cpu}), {self.ssh} here, "
            f"{self.board_ssh} on the board, loopback, {self.place}, {self.tools}; "
            f"load at the start {self.load:.2f}"
        )

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "busy": self.busy}


def look(peers: Path | None, board_ssh: str, place: str) -> Machine:
    words = [f"Python {platform.python_version()}"]
    if shutil.which("rsync"):
        words.append(_first("rsync", "--version").replace("  ", " ").partition(" protocol")[0])
    if peers is not None:
        found = {name: version(peers, name) for name in PYTHON_PEERS}
        words += [f"{name} {number}" for name, number in found.items() if number]
    return Machine(
        platform.release(),
        os.cpu_count() or 1,
        _cpu(),
        _first("ssh", "-V").partition(" ")[0].rstrip(","),
        board_ssh,
        ", ".join(words),
        os.getloadavg()[0],
        place,
    )


def _first(*argv: str) -> str:
    """The first line that a program says of itself."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
    return next(iter((done.stdout + done.stderr).splitlines()), "").strip()


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
