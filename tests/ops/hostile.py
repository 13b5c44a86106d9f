"""Trees of hostile names, and what a board must make of each: the same tree, and nothing else.

`python -m tests.ops.hostile KIND COUNT SEED FOLDER [UID]` runs so many trees through the programs
of one kind of device (tests/ops/board.py, or `windows`), as whoever starts it; or as UID, which
root becomes once all is imported: this interpreter may lie where UID may not look.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from fleet.device.call import LOADER
from fleet.device.store.worker import main
from fleet.model.command import Command
from fleet.model.manifest import Manifest
from fleet.model.plan import Blob, StageRelease, SwitchRelease
from tests.transport.windows.board import PcBoard, here

from .board import Board, manifest, ordered, program

Tree = dict[str, bytes]
KINDS = ("dash", "dash+tar", "busybox+tar", "mksh", "bash", "python", "windows")
OWN = [
    "env.sh",
    "env.ps1",
    "manifest.json",
    ".installed",
    ".seal",
    ".files",
    ".end",
    "files",
    "end",
    "own",
    "tree",
    "meta",
    "link",
    ".new-link",
    ".new",
    ".stage-r1",
    ".gone-x",
    ".batch.part",
    "store",
    "releases",
    "current",
    "history",
    "serve",
    "runs",
    "quarantine",
    "fsck",
    "shim",
    "release",
    "token",
    "app",
    ".app",
    ".app.r1",
    "victim",
]
ENDS = ("", "", "", ".new", ".part", ".over", ".spare", ".r1", ".gone", "_abcdef")
ODD = [
    *("-", "--", "-rf", "-n", "-exec", "- -", "...", "..a", "~", "~root", "#", "!", "=", "a=b"),
    *("*", "?", "[a-z]", "{a,b}", "$HOME", "$(id)", "`id`", ";", "&", "|", "<", ">", "'", '"'),
    *("\\", "\\n", "\\0101", "%s", "%n", " ", "  ", " a ", "a b", "a\r", "\r", "\b", "\x1b[2J"),
    *("\x01", "\x7f", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"),
    *("é", "e\u0301", "\u202etxt.exe", "\ufeff", "😀", "İ", "CON", "nul.txt", "a:b", "a."),
    *("x" * 255, "é" * 127, "😀" * 63, "0" * 64, "f" * 16, "A", "a"),
]
IN_THE_WAY = "in the way"  # in a folder that stands there
CONTENTS = (b"", b"x", b"the same\n", b"public\n" * 100, bytes(range(256)) * 8)


class WorkerBoard(Board):
    """The device worker, in this process: a tenth of the time."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, "python")

    def do(self, command: Command, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        words = command.argv[command.argv.index(LOADER) + 1 :]
        return here(words, stdin[len(program(self.facts)) :], {}, main)


def component(rng: Random) -> str:
    """One part of a name."""
    if rng.random() < 0.5:
        return rng.choice(OWN) + rng.choice(ENDS)
    if rng.random() < 0.8:
        return rng.choice(ODD)
    letters = [chr(rng.choice((rng.randint(32, 126), rng.randint(160, 0x2FFF)))) for _ in range(9)]
    return "".join(letters).replace("/", "_")


def tree(rng: Random) -> Tree:
    """Files by their names; no name is a folder as well."""
    found: Tree = {}
    folders: set[str] = set()
    for _ in range(rng.randint(1, 12)):
        name = "/".join(component(rng) for _ in range(rng.choice((1, 1, 1, 2, 3))))
        above = [name[:at] for at, letter in enumerate(name) if letter == "/"]
        if name in folders or any(folder in found for folder in above):
            continue
        folders.update(above)
        found[name] = rng.choice((*CONTENTS, rng.randbytes(40)))
    return found


def read(root: Path) -> Tree:
    """What stands there: contents, and folders with a slash at the end."""
    found: Tree = {}
    for top, folders, names in os.walk(root):
        at = Path(top)
        for name in names:
            path = at / name
            if name != IN_THE_WAY:
                text = path.read_bytes() if path.is_file() else str(path.readlink()).encode()
                found[str(path.relative_to(root))] = text
        for name in folders:
            found[str((at / name).relative_to(root)) + "/"] = str((at / name).is_symlink()).encode()
    return found


def with_folders(files: Mapping[str, bytes]) -> Tree:
    """The same as `read` has it of a tree."""
    found = dict(files)
    for name in files:
        found |= {name[: at + 1]: b"False" for at, letter in enumerate(name) if letter == "/"}
    return found


@dataclass
class Model:
    """A board with releases of others, and what must be on it."""

    board: Board
    root: Path
    rng: Random
    planted: int = 0

    @classmethod
    def of(cls, kind: str, root: Path, seed: int) -> Model:
        """A board of that kind in an empty folder."""
        kinds = {"windows": PcBoard, "python": WorkerBoard}
        board = kinds[kind](root) if kind in kinds else Board(root, kind)
        model = cls(board, root, Random(seed))
        (root / "aside").mkdir()
        for name in ("file", "manifest.json", ".installed"):
            (root / "aside" / name).write_bytes(b"mine")
        victim = tree(model.rng) | {"data.bin": b"public\n" * 100}
        model.deploy(Manifest("victim", model.files(victim).files, origin={"of": "another"}))
        for blob in (board.base / "store").iterdir():
            blob.chmod(0o644)  # so that whoever writes through a link can
        return model

    def files(self, wanted: Tree) -> Manifest:
        source = self.root / "source"
        shutil.rmtree(source, ignore_errors=True)
        return manifest(source, wanted)

    def deploy(self, app: Manifest) -> None:
        board = self.board
        have = board.state(app).have
        lacking = [Blob(item) for sha, item in app.blobs.items() if sha not in have]
        board.send(lacking).check(lacking, board.facts, "board", "")
        steps = (StageRelease(app), SwitchRelease(app.name, app.id))
        turns = [steps] if board.facts.tools.tar else [[step] for step in steps]
        for turn in turns:
            done = board.do(*ordered(board.facts, turn))
            assert done.returncode == 0, done.stdout + done.stderr

    def others(self, name: str, release_id: str) -> Iterator[Path]:
        """Folders that belong to other releases, and to nobody."""
        yield self.root / "aside"
        for room in ("releases", "meta"):
            for folder in (self.board.base / room).glob("*/*"):
                mine = folder.parent.name == name and folder.name == release_id
                if not mine and not folder.name.startswith("."):
                    yield folder

    def plant(self, app: Manifest) -> None:
        """Links, folders and files of others where fleet is about to write."""
        base, rng = self.board.base, self.rng
        rel, own = (base / room / "app" / app.id for room in ("releases", "meta"))
        victims = [self.root / "aside", *self.others("app", app.id)]
        victims += [path for folder in victims[:4] for path in folder.rglob("*")]
        names = [*with_folders(dict.fromkeys((item.name for item in app.files), b""))]
        places: list[Callable[[], Path]] = [
            lambda: rel,
            lambda: own,
            lambda: rel / rng.choice(names).rstrip("/"),
            lambda: rel / rng.choice(names).rstrip("/"),
            lambda: own / (rng.choice(OWN[:5]) + rng.choice(("", ".new"))),
            lambda: rel.parent / ".stage-r1",
            lambda: base / "current" / rng.choice((".app.r1", ".app.new", "app_abcdef")),
            lambda: base / "history" / ".app.new",
            lambda: (
                base / "store" / (rng.choice([*app.blobs]) + rng.choice(("", ".part", ".over")))
            ),
            lambda: base / "store" / ".batch.part",
        ]
        for _ in range(rng.randint(0, 3)):
            self.planted += put(rng.choice(places)(), rng.choice(victims), rng)

    def same(self, app: Manifest, wanted: Tree) -> None:
        """The tree there is the tree here."""
        rel = self.board.base / "releases" / "app" / app.id
        assert not rel.is_symlink()
        assert read(rel) == with_folders(wanted)

    def step(self) -> int:
        """One tree; how many files it had."""
        wanted = tree(self.rng)
        app = self.files(wanted)
        if self.rng.random() < 0.7:
            self.plant(app)
        others = {folder: read(folder) for folder in self.others("app", app.id)}
        self.deploy(app)
        self.same(app, wanted)
        assert self.board.current == app.id
        state = self.board.state(app)
        assert (state.installed, state.old) == (True, False)
        assert not state.unlinked | state.bad
        assert state.have >= set(app.blobs)
        assert {folder: read(folder) for folder in others} == others
        if self.rng.random() < 0.2:
            assert self.board.prune("2").returncode == 0
            self.same(app, wanted)
            assert read(self.root / "aside") == others[self.root / "aside"]
        return len(wanted)


def put(place: Path, victim: Path, rng: Random) -> int:
    """Something of another where `place` is; 0 where that cannot be, or would be somewhere else."""
    if any(folder.is_symlink() for folder in place.parents):
        return 0
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        how = rng.choice(("link", "link", "link", "hard", "folder"))
        if how == "link":
            place.symlink_to(victim)
        elif how == "hard" and victim.is_file() and "store" not in place.parts:
            os.link(victim, place, follow_symlinks=False)
        else:
            place.mkdir()
            (place / IN_THE_WAY).write_bytes(b"x")
    except (FileExistsError, NotADirectoryError):
        return 0
    return 1


def check(kind: str, root: Path, count: int, seed: int) -> dict[str, int]:
    """So many trees. AssertionError for the first that is not there as it is here."""
    model = Model.of(kind, root, seed)
    files = 0
    for number in range(count):
        try:
            files += model.step()
        except AssertionError as error:
            error.add_note(f"tree {number} of {kind}, seed {seed}")
            raise
    return {"trees": count, "files": files, "planted": model.planted}


def become(uid: int) -> None:
    """An ordinary user, in no group of root's."""
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


if __name__ == "__main__":
    kind, count, seed, folder, *uid = sys.argv[1:]
    for number in map(int, uid):
        os.chown(folder, number, number)
        with tempfile.TemporaryDirectory() as first:  # what is imported late is imported here
            check(kind, Path(first), 3, int(seed))
        become(number)
    figures = check(kind, Path(folder), int(count), int(seed))
    sys.stdout.write(f"{kind} as user {os.geteuid()}: {figures}\n")
