"""The lab that is pushed to: boards, what is cleaned on them, and what has arrived there."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from fleet.lab import Lab
from fleet.lab.adbserver import adb_program
from fleet.lab.folder import Board

from .sources import arrived
from .wiring import Endpoint, Wiring

_LOADER = re.compile(r"(/\S*ld-linux\S*)")
_LIBRARY = re.compile(r"=> (/\S+) \(0x")
_RSYNC = "/opt/bench"
# By its path: toybox runs an applet of its own for a bare name, on a lab phone one in plain C.
_HASHES = 'cd "$1" 2>/dev/null || exit 0; find -L . -type f -exec "$(command -v sha256sum)" {} +'


class BoardGround:
    """Boards of a lab, each with a folder that is ours; `wiring` leads to all of them."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self._boards: dict[str, Board] = {one.name: one for one in lab.boards}
        endpoints = [
            Endpoint(one.name, one.port, one.user, one.host_key, one.home) for one in lab.boards
        ]
        self.wiring = Wiring(folder / "wiring", endpoints, lab.folder.identity_file)
        self.endpoint = endpoints[0]
        self.kind = lab.boards[0].kind

    def through(self, name: str, port: int) -> Wiring:
        """The first board behind a port of this host."""
        one = self.endpoint.behind(port)
        return Wiring(self.folder / name, [one], self.lab.folder.identity_file)

    def clean(self, names: Sequence[str] = ()) -> None:
        """Empty our folder on the boards (all of them, or those named)."""
        for one in self.wiring.endpoints:
            if not names or one.name in names:
                script = 'rm -rf "$1" && mkdir -p "$1/in" && chown -R "$2" "$1"'
                self._on(one.name, script, one.place, one.user)

    def check(self, wanted: dict[str, str], endpoint: Endpoint, folder: str) -> float:
        """Every file of `wanted` is below `folder` with its hash, or the benchmark ends.

        Returns the seconds that finding and hashing took on the board.
        """
        began = time.perf_counter()
        text = self._on(endpoint.name, _HASHES, folder)
        seconds = time.perf_counter() - began
        why = arrived(wanted, _parsed(text))
        if why:
            raise SystemExit(f"wrong result on {endpoint.name}: {why}")
        return seconds

    def has(self, program: str) -> bool:
        """Whether the board has a program."""
        done = subprocess.run(
            [*self.wiring.ssh, self.endpoint.name, f"command -v {program}"],
            capture_output=True,
            check=False,
            timeout=60,
        )
        return done.returncode == 0

    def give_rsync(self) -> None:
        """This host's rsync for the first board, with the libraries and the loader it needs.

        A user board shares the host's programs; nothing is done there.
        """
        program = shutil.which("rsync")
        if program is None or self.kind != "namespace":
            return
        listed = subprocess.run(
            ["ldd", program], capture_output=True, text=True, check=False, timeout=30
        ).stdout
        loader = _LOADER.search(listed)
        if loader is None:
            return
        root = Path(f"/proc/{self._boards[self.endpoint.name].pid}/root")
        place = root / _RSYNC.lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        for path in (program, loader[1], *_LIBRARY.findall(listed)):
            shutil.copy(path, place / Path(path).name)
        wrapper = root / "usr/local/bin/rsync"
        wrapper.write_text(
            f"#!/bin/sh\nexec {_RSYNC}/{Path(loader[1]).name} --library-path {_RSYNC} "
            f'{_RSYNC}/rsync "$@"\n',
            "utf-8",
        )
        wrapper.chmod(0o755)

    def _on(self, name: str, script: str, *args: str) -> str:
        """Run a script as root of a namespace board; for a user board, here."""
        argv = ["sh", "-c", script, "bench", *args]
        if self.kind == "namespace":
            done = self.lab.exec(name, argv)
        else:
            done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode:
            raise SystemExit(f"{name}: {done.stderr.strip()[-300:]}")
        return done.stdout


class PhoneGround:
    """One lab phone and the adb that leads to it."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.phone = lab.phones[0]
        self.port = lab.adb_server.rpartition(":")[2]
        self.adb = (adb_program(), "-P", self.port, "-s", self.phone.serial)
        connect = [*self.adb[:3], "connect", self.phone.serial]
        subprocess.run(connect, check=True, capture_output=True, timeout=60)
        self.place = f"{self.phone.home}/bench"
        self.base = f"{self.place}/fleet"
        self.inbox = f"{self.place}/in"
        host = {"serial": self.phone.serial, "base_dir": self.base}
        common = {"transport": "adb", "adb_server": lab.adb_server}
        self.inventory = folder / "phone.yaml"
        data = {"all": {"vars": common, "hosts": {self.phone.name: host}}}
        self.inventory.write_text(json.dumps(data) + "\n", "utf-8")  # JSON is YAML

    def clean(self) -> None:
        self._shell('rm -rf "$1" && mkdir -p "$1/in"', self.place)

    def check(self, wanted: dict[str, str], folder: str) -> float:
        """As for boards."""
        began = time.perf_counter()
        text = self._shell(_HASHES, folder)
        seconds = time.perf_counter() - began
        why = arrived(wanted, _parsed(text))
        if why:
            raise SystemExit(f"wrong result on {self.phone.name}: {why}")
        return seconds

    def _shell(self, script: str, *args: str) -> str:
        """Over adb; the phone's own shell sees quoted words only."""
        words = " ".join(shlex.quote(word) for word in ("sh", "-c", script, "bench", *args))
        done = subprocess.run(
            [*self.adb, "shell", words],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        if done.returncode:
            raise SystemExit(f"{self.phone.name}: {done.stderr.strip()[-300:]}")
        return done.stdout


def _parsed(text: str) -> dict[str, str]:
    """Lines of sha256sum -> path and hash."""
    found = {}
    for line in text.splitlines():
        digest, _, path = line.partition("  ")
        if len(digest) == 64:
            found[path.removeprefix("./")] = digest
    return found


def room_for(folder: Path, need: int) -> str:
    """Why `need` bytes do not fit there; "" when they do."""
    free = shutil.disk_usage(folder).free
    if folder.is_relative_to("/dev/shm"):
        with Path("/proc/meminfo").open("r", encoding="utf-8") as stream:
            rows = dict(line.split(":") for line in stream)
        free = min(free, int(rows["MemAvailable"].split()[0]) * 1024 - (2 << 30))
    if free >= need:
        return ""
    return f"{need / 1e9:.1f} GB are needed in {folder}, {max(0, free) / 1e9:.1f} GB are free"


def settle(folder: Path) -> None:
    """What earlier runs left to be written is written now (a disk; memory has nothing)."""
    if not folder.is_relative_to("/dev/shm"):
        os.sync()
