"""`fleet push` as a process: its link is cut at a random byte, or it is killed at a random moment.

Afterwards the board has the old or the new release, whole; the next push goes through at once.
"""

from __future__ import annotations

import functools
import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleet.model.inventory import Host
from tests.chaos import Chaos, Fault
from tests.transport.sshd import Sshd, running

SIZES = (40, 300, 70_000, 6 << 20)  # bytes of the files of a release
SENT_AGAIN = 3 << 20  # docs/promises.md, T2
TALK = 1 << 18  # handshakes, questions and programs of the connections of two pushes
UNREACHABLE = 3
PART = 25  # rounds


class Yard:
    """A board behind a link, and a workstation of its own; `push` is the command line."""

    def __init__(self, server: Sshd, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.base, self.home = folder / "base", folder / "home"
        self.releases: list[Path] = []
        self.took = 0.0  # seconds of the last push that was let alone

    def release(self, dice: random.Random) -> Path:
        """A new folder to push: incompressible files, all of them changed."""
        made = self.folder / f"release{len(self.releases)}"
        made.mkdir()
        for size in SIZES:
            (made / f"file{size}").write_bytes(dice.randbytes(size))
        self.releases.append(made)
        return made

    def start(self, link: Chaos | None, source: Path) -> subprocess.Popen[str]:
        host: Host = self.server.host()
        known, port = host.known_hosts, host.port
        if link is not None:
            through = link.through(host, self.folder)
            known, port = through.known_hosts, through.port
        inventory = self.folder / "inventory.yaml"
        inventory.write_text(
            "all:\n  hosts:\n    board:\n"
            f"      host: 127.0.0.1\n      port: {port}\n      user: {host.user}\n"
            f"      identity_file: {host.identity_files[0]}\n      known_hosts: {known}\n"
            f"      base_dir: {self.base}\n"
        )
        argv = [sys.executable, "-m", "fleet", "push", "-i", str(inventory), str(source)]
        return subprocess.Popen(
            [*argv, "--name", "app"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "FLEET_HOME": str(self.home)},
        )

    def push(self, link: Chaos | None, source: Path) -> tuple[int, str]:
        began = time.monotonic()
        process = self.start(link, source)
        _, said = process.communicate(timeout=300)
        self.took = time.monotonic() - began
        return process.returncode, said

    def live(self) -> Path:
        """The pushed folder that the live release equals, byte by byte."""
        # Looked up once: what a killed push had begun on the board may switch meanwhile.
        current = (self.base / "current" / "app").resolve(strict=True)
        found = [
            source
            for source in self.releases
            if all((current / f.name).read_bytes() == f.read_bytes() for f in source.iterdir())
        ]
        assert len(found) == 1, "a mixture of two releases is live"
        for blob in (self.base / "store").iterdir():
            if blob.is_file() and len(blob.name) == 64:
                with blob.open("rb") as stream:
                    assert hashlib.file_digest(stream, "sha256").hexdigest() == blob.name
        return found[0]

    def interrupted(
        self,
        dice: random.Random,
        stop: Callable[[Path], tuple[int, str]],
        link: Chaos | None = None,
    ) -> None:
        """A push that `stop` interrupts, then another."""
        old, new = self.releases[-1], self.release(dice)
        code, said = stop(new)
        before = self.live()
        assert before in (old, new)
        assert code in (0, UNREACHABLE, -signal.SIGKILL), said
        assert code != 0 or before == new
        code, said = self.push(link, new)
        assert code == 0, said
        assert self.live() == new


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with running(tmp_path / "sshd") as server:
        made = Yard(server, tmp_path)
        code, said = made.push(None, made.release(random.Random(0)))
        assert code == 0, said
        yield made


def parts(few: int, count: int) -> pytest.MarkDecorator:
    """A few rounds, and in the slow tier `count` of them: in parts, each with dice of its own."""
    seeds = range(1, count // PART + 1)  # 0 made the first release
    slow = [pytest.param(PART, seed, marks=pytest.mark.slow) for seed in seeds]
    return pytest.mark.parametrize(("rounds", "seed"), [(few, few), *slow])


@parts(3, 200)
def test_a_link_that_is_cut_at_a_random_byte(yard: Yard, rounds: int, seed: int) -> None:
    """In either direction, by RST or FIN; a push mends it by itself, or ends as unreachable."""
    dice = random.Random(seed)
    with Chaos(yard.server.port, [Fault()]) as link:
        code, said = yard.push(link, yard.release(dice))
        assert code == 0, said
        towards, back = link.sent, link.received
    cuts = 0
    for _ in range(rounds):
        how = dice.choice(("rst", "fin"))
        fault = (
            Fault(cut=dice.randrange(towards), how=how)  # type: ignore[arg-type]
            if dice.random() < 0.6
            else Fault(cut_back=dice.randrange(back), how=how)  # type: ignore[arg-type]
        )
        with Chaos(yard.server.port, [fault], then=Fault()) as link:
            yard.interrupted(dice, functools.partial(yard.push, link), link)
            assert link.sent <= towards + SENT_AGAIN + TALK, fault
            cuts += link.cuts
    assert cuts, "no cut came in time"


@parts(2, 100)
def test_a_workstation_that_is_killed_at_a_random_moment(
    yard: Yard, rounds: int, seed: int
) -> None:
    dice = random.Random(seed)

    def killed(source: Path) -> tuple[int, str]:
        process = yard.start(None, source)
        try:
            _, said = process.communicate(timeout=dice.uniform(0.1, 1.1) * yard.took)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            _, said = process.communicate()
        return process.returncode, said

    for _ in range(rounds):
        yard.interrupted(dice, killed)
