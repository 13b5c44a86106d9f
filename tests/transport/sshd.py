"""A real OpenSSH server on loopback, for tests: own keys, own configuration, one port."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleet.lab.tools import without_penalties
from fleet.model.inventory import Host

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin:" + os.environ.get("PATH", ""))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def make_key(path: Path) -> Path:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True, timeout=20
    )
    return path


class Sshd:
    """One sshd; `host()` gives an inventory host for it, with its key pinned."""

    def __init__(self, folder: Path, port: int | None = None) -> None:
        if SSHD is None:
            pytest.skip("no sshd on this machine: apt-get install openssh-server")
        self.folder = folder
        self.port = port or free_port()
        self.identity = make_key(folder / "id")
        self.host_key = make_key(folder / "host")
        (folder / "authorized").write_text((folder / "id.pub").read_text())
        self.known_hosts = folder / "known_hosts"
        self.pin()
        self.leases = folder / "leases"  # a board of its own has leases of its own
        self.leases.mkdir()
        self.process: subprocess.Popen[bytes] | None = None

    def pin(self) -> None:
        kind, key = (self.folder / "host.pub").read_text().split()[:2]
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {kind} {key}\n")

    def start(self, *options: str) -> None:
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        settings = (
            *options,  # the first value of a setting wins
            f"ListenAddress=127.0.0.1:{self.port}",
            f"HostKey={self.host_key}",
            f"AuthorizedKeysFile={self.folder}/authorized",
            "PidFile=none",
            "UsePAM=no",
            "StrictModes=no",
            "UseDNS=no",
            "PasswordAuthentication=no",
            "PermitRootLogin=yes",
            f'SetEnv="FLEET_LEASE_DIR={self.leases}"',
            "MaxStartups=100",
            *(f"{key}={value}" for key, value in without_penalties(str(SSHD)).items()),
        )
        argv = [str(SSHD), "-D", "-e", "-f", "/dev/null"]
        for setting in settings:
            argv += ["-o", setting]
        with (self.folder / "sshd.log").open("ab") as log:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=log, stdout=log)
        self._ready()

    def _ready(self) -> None:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self.port), 1),
            ):
                return
            time.sleep(0.01)
        raise AssertionError((self.folder / "sshd.log").read_text())

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def host(self, **changes: object) -> Host:
        values: dict[str, object] = {
            "name": "board",
            "address": "127.0.0.1",
            "port": self.port,
            "user": getpass.getuser(),
            "identity_files": (self.identity,),
            "known_hosts": self.known_hosts,
            "connect_timeout": 10.0,
            **changes,
        }
        return Host(**values)  # type: ignore[arg-type]


@contextlib.contextmanager
def running(folder: Path, *options: str) -> Iterator[Sshd]:
    folder.mkdir(parents=True, exist_ok=True)
    server = Sshd(folder)
    server.start(*options)
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def counting(folder: Path, *options: str) -> Iterator[tuple[Sshd, Callable[[], int]]]:
    """A server, and how many login shells it has started so far."""
    shells = folder / "shells"
    folder.mkdir(parents=True, exist_ok=True)
    shells.touch()
    count = f'ForceCommand=echo >> {shells}; eval "$SSH_ORIGINAL_COMMAND"'
    with running(folder, *options, count) as server:
        yield server, lambda: shells.read_text().count("\n")
