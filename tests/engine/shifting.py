"""Random folders on a device, what befalls their files while `fleet get` reads them, and a judge.

Only what a file held at some time may arrive, and what does not arrive must be named.
"""

from __future__ import annotations

import io
import os
import random
import tarfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from fleet.cli.common import end_devices
from fleet.engine.everyday.get import Fetching, fetch_everywhere
from fleet.engine.everyday.landing import named
from fleet.engine.pool import DeviceResult
from fleet.model.command import script
from fleet.model.deadline import Deadline
from fleet.model.events import Event, StepStarted, Warned
from fleet.model.inventory import Host
from fleet.transport import transport_for

MISHAPS = {
    "empty": ': > "$f"',
    "short": 'head -c 100 "$f" > "$f.new"; cat "$f.new" > "$f"; rm "$f.new"',
    "grown": 'echo grown >> "$f"',
    "gone": 'rm "$f"',
    "owner": 'chown 0 "$f"; chmod 600 "$f"',
    "link": 'ln -sfn /etc/passwd "$f"',
    "other": 'echo other > "$f"',
    "rotated": 'cp "$f" "$f.new"; : > "$f"; sleep 0.02; cat "$f.new" > "$f"; rm "$f.new"',
    "growing": 'for n in 0 1 2 3 4 5 6 7 8 9; do echo "$n" >> "$f"; sleep 0.1; done',
}
SKIPPED = "is a symbolic link, and fleet does not follow links; fleet did not copy it"
_LETTERS = [bytes([code]) for code in range(1, 256) if code != 0x2F]
_PLAIN = [bytes([code]) for code in b"abcdefgh.- _0123"]
_FOLDERS = (b"", b"", b"d/", b"d\xff/", b"e/f g/", b"e/\n/")
AsRoot = Callable[[str], object]  # runs shell text as root of the device, not by fleet


def _name(dice: random.Random) -> bytes:
    while True:
        letters = _LETTERS if dice.random() < 0.5 else _PLAIN
        name = b"".join(dice.choices(letters, k=dice.randrange(1, 20)))
        if name not in {b".", b"..", b"d", b"d\xff", b"e", b"f g", b"\n"}:
            return dice.choice(_FOLDERS) + name


def _content(dice: random.Random) -> bytes:
    sizes = [0, 1, 10, 1000, 65535, 65536, 65537, 200_000, dice.randrange(3_000_000)]
    return dice.randbytes(dice.choice(sizes))


def _text(folder: str, name: bytes, mishap: str) -> str:
    letters = "".join(f"\\{code:03o}" for code in folder.encode() + b"/" + name)
    return f"f=$(printf '{letters}x'); f=${{f%x}}; {MISHAPS[mishap]}"


@dataclass
class Tree:
    """A folder of a device: what its files held first, and what happens when."""

    seed: int
    folder: str
    first: dict[bytes, bytes] = field(default_factory=dict)
    plan: dict[bytes, str] = field(default_factory=dict)
    steps: dict[str, list[str]] = field(default_factory=dict)  # before, listed, later: shell text
    said: list[str] = field(default_factory=list)  # the warnings of fleet

    def __post_init__(self) -> None:
        dice = random.Random(self.seed)
        for _ in range(dice.randrange(3, 25)):
            self.first[_name(dice)] = _content(dice)
        count = dice.choice([0, 1, 2, len(self.first) // 2])
        for name in dice.sample(sorted(self.first), count):
            mishap, when = dice.choice(list(MISHAPS)), dice.choice(["before", "listed", "later"])
            if mishap == "gone" and when == "before":  # no file of the folder at all
                continue
            self.plan[name] = mishap
            self.steps.setdefault(when, []).append(_text(self.folder, name, mishap))
        if dice.random() < 0.3:
            text = _text(self.folder, b"new" + _name(dice).rpartition(b"/")[2], "other")
            self.steps.setdefault("later", []).append(text)

    def lay(self, host: Host, as_root: AsRoot) -> None:
        """Make it on the device, as the user that fleet logs in as; then what comes before."""
        as_root(f"rm -rf '{self.folder}'")
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for name, data in self.first.items():
                about = tarfile.TarInfo(os.fsdecode(name))
                about.size, about.mode = len(data), 0o644
                tar.addfile(about, io.BytesIO(data))
        link = transport_for(host)
        link.open(Deadline(20))
        make = script('mkdir -p "$1" && tar -xf - -C "$1"', self.folder)
        done = link.run(make, Deadline(60), stdin=[packed.getvalue()])
        link.close()
        assert done.ok, done.error_text
        self.happen("before", as_root)

    def happen(self, when: str, as_root: AsRoot) -> None:
        """Do to the files what the plan says for that time."""
        if when in self.steps:
            as_root("\n".join(self.steps[when]))

    def may_hold(self, name: bytes, data: bytes) -> bool:
        """True where the file held these bytes at some time."""
        was = self.first[name]
        grown = was + b"".join(b"%d\n" % number for number in range(10))
        return data in {
            "": {was},
            "empty": {was, b""},
            "short": {was, was[:100], b""},
            "grown": {was, was + b"grown\n"},
            "other": {was, b"other\n", b""},
            "rotated": {was} | ({data} if was.startswith(data) else set()),
            "growing": {was} | ({data} if grown.startswith(data) else set()),
        }.get(self.plan.get(name, ""), {was})


def fetch(tree: Tree, host: Host, as_root: AsRoot, target: Path) -> tuple[DeviceResult[Any], int]:
    """`fleet get` of the tree, with its mishaps; the result and the exit code."""
    dice = random.Random(tree.seed)
    threads = []

    def listener(event: Event) -> None:
        if isinstance(event, Warned):
            tree.said.append(event.text)
        if isinstance(event, StepStarted):
            tree.happen("listed", as_root)
            late = threading.Timer(dice.random() * 0.3, tree.happen, ("later", as_root))
            late.start()
            threads.append(late)

    (done,) = fetch_everywhere(Fetching(tree.folder, target), [host], listener, parallel=1)
    for thread in threads:
        thread.join()
    try:
        end_devices([done])
    except typer.Exit as end:
        return done, end.exit_code
    return done, 0


def judge(tree: Tree, done: DeviceResult[Any], code: int, target: Path) -> None:
    """Every file has arrived whole or is named, and the exit code says which."""
    where = os.fsencode(target / Path(tree.folder).name)
    came = {
        os.path.relpath(f"{os.fsdecode(above)}/{os.fsdecode(name)}", os.fsdecode(where)): name
        for above, _, names in os.walk(where)
        for name in names
    }
    parts = [name for name in came.values() if name.startswith(b".fleet-")]
    missing = done.value.missing if done.value else {}
    assert isinstance(missing, dict)
    said = f"seed {tree.seed}, {tree.plan}, {missing}, {done.error}"
    for name in tree.first:
        if os.fsdecode(name) in came:
            data = Path(os.fsdecode(where), os.fsdecode(name)).read_bytes()
            assert tree.may_hold(name, data), f"{name!r}: {said}"
            assert named(name) not in missing, f"{name!r}: {said}"
        else:
            skipped = tree.plan.get(name) == "link" and f"{named(name)} {SKIPPED}" in tree.said
            assert skipped or named(name) in missing, f"{name!r}: {said}"
            assert name in tree.plan or code == 3, f"{name!r}: {said}"
    assert code == (3 if code == 3 else bool(missing)), said
    assert not parts or code == 3, said
