"""Boards by the hour: a device farm in network namespaces, as Qualcomm Device Cloud is described.

A workstation sees only a gateway, whose account may forward and nothing else. The board behind it
has a new name and a new host key in each session. Everything is emulated: no account, no farm.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import yaml

from fleet.config.playbook import load_playbook
from fleet.runtimes.store import RuntimeStore
from tests import needs, warm
from tests.transport.sshd import SSHD, make_key

from .conftest import ROOT, Bench

_NEW_NET = 0x40000000  # CLONE_NEWNET, setns(2)
GATEWAY, BOARD = "10.77.1.2", "10.77.2.2"
# Nothing that a user would learn to click away.
PROMPTS = ("(yes/no", "--reflashed", "CHANGED", "Is this the fingerprint")


class Place:
    """A network and a mount namespace, which end with their first process."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            ["unshare", "-n", "-m", "sh", "-c", "echo; exec sleep 100000"], stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()
        self.run("ip", "link", "set", "lo", "up")

    def argv(self, *words: str) -> list[str]:
        return ["nsenter", "-t", str(self.process.pid), "-n", "-m", *words]

    def run(self, *words: str) -> None:
        subprocess.run(self.argv(*words), check=True, timeout=20)

    def wire(self, other: Place, net: str) -> None:
        """A wire with the addresses NET.1 here and NET.2 there."""
        name = f"v{net.rpartition('.')[2]}"
        self.run("ip", "link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b",
                 "netns", str(other.process.pid))  # fmt: skip
        for place, end, number in ((self, "a", 1), (other, "b", 2)):
            place.run("ip", "addr", "add", f"{net}.{number}/24", "dev", f"{name}{end}")
            place.run("ip", "link", "set", f"{name}{end}", "up")

    def end(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process.kill()
        self.process.wait()

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """This thread is in the network of the place; what it starts stays there."""
        setns = ctypes.CDLL(None, use_errno=True).setns
        with (
            Path("/proc/thread-self/ns/net").open("rb") as own,
            Path(f"/proc/{self.process.pid}/ns/net").open("rb") as other,
        ):
            assert setns(other.fileno(), _NEW_NET) == 0
            try:
                yield
            finally:
                assert setns(own.fileno(), _NEW_NET) == 0


class Farm:
    """A workstation, a gateway and a board; `book` gives the board anew."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.desk, self.gate, self.far = Place(), Place(), Place()
        self.desk.wire(self.gate, "10.77.1")
        self.gate.wire(self.far, "10.77.2")
        self.key = make_key(folder / "qdc.pem")
        self.names = folder / "hosts"
        self.names.write_text("127.0.0.1 localhost\n")
        self.gate.run("mount", "--bind", str(self.names), "/etc/hosts")
        self.servers: list[subprocess.Popen[bytes]] = []
        self.board: subprocess.Popen[bytes] | None = None
        only = ("ForceCommand=/bin/false", "PermitTTY=no", "AllowTcpForwarding=local")
        self.start(self.gate, GATEWAY, make_key(folder / "gate"), *only)

    def start(self, place: Place, address: str, key: Path, *options: str) -> None:
        settings = (
            *options, f"ListenAddress={address}:22", f"HostKey={key}", "PidFile=none",
            f"AuthorizedKeysFile={self.key}.pub", "UsePAM=no", "StrictModes=no", "UseDNS=no",
            "PermitRootLogin=yes", "PasswordAuthentication=no",
        )  # fmt: skip
        argv = [str(SSHD), "-D", "-e", "-f", "/dev/null", *(f"-o{each}" for each in settings)]
        with (self.folder / "sshd.log").open("ab") as log:
            self.servers.append(subprocess.Popen(place.argv(*argv), stderr=log, stdout=log))
        end = time.monotonic() + 20
        probe = place.argv("bash", "-c", f"exec 3<>/dev/tcp/{address}/22")
        while subprocess.run(probe, check=False, stderr=subprocess.DEVNULL).returncode:
            assert time.monotonic() < end, (self.folder / "sshd.log").read_text()

    def book(self, number: int) -> tuple[str, str, Path]:
        """A new session: its tunnel command, the fingerprint of its key, the home of the board."""
        if len(self.servers) > 1:
            old = self.servers.pop()
            old.kill()
            old.wait()
        home = self.folder / f"home{number}"
        home.mkdir()
        key = make_key(self.folder / f"board{number}")
        self.start(
            self.far, BOARD, key, f'SetEnv="FLEET_BOARD_HOME={home}" "FLEET_LEASE_DIR={home}"'
        )
        name = f"sa{number}.farm.test"
        self.names.write_text(f"127.0.0.1 localhost\n{BOARD} {name}\n")
        shown = subprocess.run(
            ["ssh-keygen", "-lf", f"{key}.pub"], check=True, capture_output=True, text=True
        ).stdout.split()[1]
        line = f"ssh -i {self.key} \\\n    -L 2222:{name}:22 \\\n    -N root@{GATEWAY}"
        return line, shown, home

    def end(self) -> None:
        for server in self.servers:
            server.kill()
            server.wait()
        for place in (self.desk, self.gate, self.far):
            place.end()


@pytest.fixture
def farm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Farm]:
    if os.geteuid():
        pytest.skip("only root makes network namespaces with wires")
    for program in ("unshare", "nsenter", "ip", "sshd", "ssh-keygen", "bash"):
        needs.tool(program)
    Path("/run/sshd").mkdir(exist_ok=True)
    found = Farm(tmp_path)
    monkeypatch.setattr(warm, "_server", cache(warm._server.__wrapped__))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "fleet-home"))
    with found.desk.inside():
        warm._server()
    try:
        yield found
    finally:
        found.end()


def call(folder: Path, *words: str) -> tuple[int, str, str]:
    """A command: its exit code, its answer and all of its words."""
    done = warm.fleet(*words, cwd=folder)
    said = done.stdout + done.stderr
    assert not [word for word in PROMPTS if word in said]
    return done.returncode, done.stdout, said


def test_boards_come_and_go_and_nothing_is_left(farm: Farm) -> None:
    come_and_go(farm, 2, 1)


def test_twenty_sessions_five_of_them_cut(farm: Farm) -> None:
    come_and_go(farm, 20, 5)


def come_and_go(farm: Farm, sessions: int, cut: int) -> None:
    folder, inventory = farm.folder, "session.yaml"
    (folder / "payload").write_bytes(os.urandom(100_000))
    seen = set()
    for number in range(sessions):
        line, key, home = farm.book(number)
        name, short = f"sa{number}", number % (sessions // cut) == 1
        add = ("config", "session", line, "-i", inventory, "--for", "26s" if short else "1h")
        if number == 0:
            code, _, said = call(folder, *add)
            assert (code, "the jump host" in said) == (3, True), said
            assert not (folder / inventory).exists()
        first = ("--accept-new",) if number == 0 else ()
        code, added, said = call(folder, *add, *first, "--json")
        assert code == 0, said
        assert (json.loads(added)["name"], json.loads(added)["host_key"]) == (name, key)
        seen.add(key)
        code, _, said = call(folder, "push", "payload", "-i", inventory, "--name", "app")
        assert code == 0 or short, said
        if short:
            code, _, said = call(folder, "exec", "sleep 600", "-i", inventory, "--timeout", "590s")
            assert code == 1, said
            assert f"the session of {name} is over" in said
            assert call(folder, "exec", "true", "-i", inventory)[0] == 1
        code, _, said = call(folder, "config", "session", "--end", name, "-i", inventory)
        assert code == 0, said
        assert [path.name for path in home.iterdir()] == []
        assert not (folder / inventory).exists()
    known = (folder / "session.known_hosts").read_text().split()
    assert known[::3] == [GATEWAY]
    assert len(seen) == sessions
    assert not (folder / ".ssh").exists()


@pytest.mark.qairt
def test_a_deploy_that_does_not_fit_is_refused_and_one_that_fits_runs(
    bench: Bench, tmp_path: Path
) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "x").write_text("x")
    (tmp_path / "mine.sh").write_text("#!/bin/sh\nsleep ${1:-0}\n")
    text = (
        "name: own\nbundle: {path: bundle, kind: files}\nruntime: none\n"
        "run: {runner: exec, program: mine.sh, timeout: 300, repeats: 2}\n"
    )
    (tmp_path / "playbook.yaml").write_text(text)
    bench.playbook = load_playbook(tmp_path / "playbook.yaml")
    bench.host = replace(bench.host, until=time.time() + 120)
    (refused,) = bench.operation().deploy()
    assert refused.outcome == "refused"
    assert "may take 10 min (runs 10 min), but the session of board ends at" in refused.text
    assert not bench.base.exists()
    bench.host = replace(bench.host, until=time.time() + 3600)
    (done,) = bench.operation().deploy()
    assert (done.error, len(done.records)) == (None, 2)


@pytest.mark.qairt
def test_a_selftest_and_a_deploy_on_the_board_of_the_farm(
    farm: Farm, qairt_store: RuntimeStore
) -> None:
    """The lines of docs/howto/board-by-the-hour.md. The emulated board hides its chip."""
    folder, inventory, playbook = farm.folder, "session.yaml", ROOT / "playbooks/tiny-genie.yaml"
    (folder / "fleet-home").mkdir()
    (folder / "fleet-home" / "runtimes").symlink_to(qairt_store.root)
    line, _, home = farm.book(0)
    code, _, said = call(folder, "config", "session", line, "-i", inventory, "--accept-new")
    assert code == 0, said
    code, answer, said = call(
        folder, "selftest", "sa0", "-i", inventory, "--runtime", "2.51.0", "--yes", "--json"
    )
    (climbed,) = json.loads(answer)["devices"]
    assert climbed["emulated"] is True, said
    assert "holds" in {rung["status"] for rung in climbed["rungs"]}
    written = (folder / inventory).read_text()
    hosts = yaml.safe_load(written)
    hosts["all"]["hosts"]["sa0"]["soc"] = "QCS9075"
    (folder / inventory).write_text(yaml.safe_dump(hosts))
    code, _, said = call(folder, "deploy", str(playbook), "-i", inventory)
    assert code == 0, said
    (folder / inventory).write_text(written)
    code, _, said = call(folder, "config", "session", "--end", "sa0", "-i", inventory)
    assert code == 0, said
    assert [path.name for path in home.iterdir()] == []
