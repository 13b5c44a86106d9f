"""One board: a new blob, many small files, nothing changed, a small change in a large blob."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from . import peers, sources
from .compare import Bench, Case, available, compare, once
from .fleetrows import API, CLI, NAMES, ROWS
from .ground import BoardGround
from .sources import MIB
from .stats import Bar, Figures, Result, Row
from .tools import Command, Push, Tool

GIB = 1 << 30
FILES, FOLDERS = 2000, 20
PYTHON = (
    *(peers.PARAMIKO, peers.FABRIC, peers.ASYNCSSH, peers.ASYNCSSH_SCP),
    *(peers.ANSIBLE, peers.PYINFRA),
)
_STEPS = ("connect", "host_hash", "facts", "state", "send", "stage", "switch", "prune")
_PARTS = (
    ("after_last_byte", "after the last byte s"),
    ("payload_bytes", "payload bytes"),
    ("round_trips", "round trips"),
)


class OneBoard:
    """The pushes of one scenario to the first board of a lab."""

    def __init__(self, bench: Bench, ground: BoardGround, source: Path) -> None:
        self.bench, self.ground, self.source = bench, ground, source
        self.wanted = sources.hashes(source)

    def push(self, tool: Tool, source: Path | None = None) -> Push:
        return Push(
            source or self.source,
            self.ground.endpoint,
            self.ground.wiring,
            self.bench.fresh("scratch"),
            self.home(tool),
            self.bench.peers,
        )

    def home(self, tool: Tool) -> Path:
        """fleet's state on this host, one for each row."""
        return self.bench.folder / "homes" / NAMES.get(tool.name, "peer")

    def command(self, tool: Tool) -> Command:
        return tool.build(self.push(tool))

    def anew(self, tool: Tool) -> None:
        """An empty board, and a fleet that has never seen the files."""
        self.ground.clean()
        shutil.rmtree(self.home(tool), ignore_errors=True)

    def check(self, tool: Tool) -> Figures:
        one = self.ground.endpoint
        folder = f"{one.base}/current/{NAMES[tool.name]}" if tool.kind == "fleet" else one.inbox
        return {"hash_alone": self.ground.check(self.wanted, one, folder)}

    def measure(
        self, scenario: str, title: str, names: Sequence[str], case: Case, reference: str
    ) -> Result:
        tools = [*ROWS, *(peers.PEERS[name] for name in names)]
        rows, missing = compare(self.bench, tools, case)
        self.ground.clean()
        return Result(
            scenario,
            title,
            reference,
            rows,
            self.bench.rounds,
            columns=_PARTS,
            missing=missing,
            notes=parts_of(rows),
        )


def parts_of(rows: Sequence[Row]) -> list[str]:
    """Where fleet's time went, as its Python API says."""
    row = next((row for row in rows if row.name == API), None)
    found = {name: row.median(name) for name in _STEPS} if row is not None else {}
    told = [f"{name.replace('_', ' ')} {value:.3f}" for name, value in found.items() if value]
    return [f"seconds of {API}: {', '.join(told)}"] if told else []


def size_word(size: int) -> str:
    """`1 GiB`, `20.5 MiB`, `64 KiB`."""
    for unit, factor in (("GiB", GIB), ("MiB", MIB)):
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size / 1024:.4g} KiB"


def one_blob(bench: Bench, ground: BoardGround) -> Result:
    """a: one incompressible blob that the board has not."""
    size = bench.bytes(GIB)
    board = OneBoard(bench, ground, sources.blob(bench.fresh("source") / "big", size))
    names = (
        *(peers.CAT, peers.CAT_HASHED, peers.TAR, peers.SCP, peers.SFTP, peers.RSYNC, *PYTHON),
        *(peers.ANSIBLE_SYNC, peers.PYINFRA_RSYNC),
    )
    case = Case(board.command, board.anew, board.check, has=ground.has)
    result = board.measure("a", f"One new blob of {size_word(size)}", names, case, peers.CAT)
    result.bars = (
        Bar("at most 1.3 x cat over ssh, hash and sync included", CLI, (peers.CAT,), most=1.3),
        Bar("quicker than scp and rsync", CLI, (peers.SCP, peers.RSYNC), most=1.0),
        Bar("quicker than every Python peer", CLI, PYTHON, most=1.0),
    )
    alone = result.rows[0].median("hash_alone")
    if alone is not None:
        result.notes.append(
            f"sha256sum of the blob on the board, alone: {alone:.2f} s; it is inside fleet's "
            f"figures and those of `{peers.CAT_HASHED}`, and of no other tool"
        )
    tail = result.row(API)
    if tail is not None and tail.median("after_last_byte") is not None:
        result.notes.append(
            "of fleet's time after the last byte was handed over (what is left of the stream, "
            f"hash, sync, rename): {tail.median('after_last_byte'):.2f} s"
        )
    return result


def many_files(bench: Bench, ground: BoardGround) -> Result:
    """b: small files in folders."""
    files, folders = bench.count(FILES, 40), FOLDERS
    source = sources.tree(bench.fresh("source") / "many", files, folders)
    board = OneBoard(bench, ground, source)
    names = (
        *(peers.TAR, peers.SCP, peers.SFTP, peers.RSYNC, peers.PARAMIKO, peers.FABRIC),
        *(peers.ASYNCSSH, peers.ASYNCSSH_SCP, peers.ANSIBLE, peers.PYINFRA_SYNC),
        *(peers.ANSIBLE_SYNC, peers.PYINFRA_RSYNC),
    )
    case = Case(board.command, board.anew, board.check, has=ground.has)
    title = f"{files:,} files of 4 KiB in {folders} folders"
    result = board.measure("b", title, names, case, peers.TAR)
    result.bars = (
        Bar("at most 1.2 x tar over ssh", CLI, (peers.TAR,), most=1.2),
        Bar("fabric takes at least 5 x as long", peers.FABRIC, (CLI,), least=5.0),
    )
    return result


def nothing_changed(bench: Bench, ground: BoardGround) -> Result:
    """c: all is there already; the same push again."""
    size, files = bench.bytes(GIB), bench.count(FILES, 40)
    source = bench.fresh("source") / "all"
    sources.blob(source / "big", size)
    sources.tree(source, files, FOLDERS)
    board = OneBoard(bench, ground, source)
    names = (
        *(peers.RSYNC, peers.ANSIBLE, peers.PYINFRA_SYNC),
        *(peers.ANSIBLE_SYNC, peers.PYINFRA_RSYNC),
    )
    ground.clean()
    ready, _ = available(bench, ROWS, ground.has)
    for tool in (*ready, peers.PEERS[peers.TAR]):
        shutil.rmtree(board.home(tool), ignore_errors=True)
        once(bench, board.command(tool), tool.name)
    case = Case(board.command, lambda _: None, board.check, has=ground.has)
    title = f"Nothing changed: {size_word(size)} and {files:,} files are there"
    result = board.measure("c", title, names, case, peers.RSYNC)
    result.columns = (
        ("connect", "connect s"),
        ("facts", "facts s"),
        ("host_hash", "host hash s"),
        ("state", "state s"),
    )
    result.columns += (("payload_bytes", "payload bytes"), ("round_trips", "round trips"))
    result.bars = (
        Bar("at most 50 ms on an open connection", API, field="inner", most=0.05, unit="s"),
        Bar("no payload", API, field="payload_bytes", most=0, unit="bytes"),
        Bar("no slower than rsync", CLI, (peers.RSYNC,), most=1.0),
    )
    return result


def small_change(bench: Bench, ground: BoardGround) -> Result:
    """d: a new version of a large blob, of which 1 MiB in the middle is another."""
    return _changed(bench, ground, "d", 1)


def further_change(bench: Bench, ground: BoardGround) -> Result:
    """h: the same where the board has had two versions before."""
    return _changed(bench, ground, "h", 3)


def _changed(bench: Bench, ground: BoardGround, letter: str, versions: int) -> Result:
    size = bench.bytes(GIB)
    part = bench.bytes(MIB, 4096)
    top = bench.fresh("source")
    olds = [sources.blob(top / "0" / "big", size)]
    for number in range(1, versions + 1):
        (top / f"{number}").mkdir()
        new = Path(shutil.copy2(olds[-1], top / f"{number}" / "big"))
        place = size // 2 if number == versions else size // 4 * number
        sources.change(new, part, place, sources.SETTLED + 60 * number)
        olds.append(new)
    board = OneBoard(bench, ground, olds.pop())

    def before(tool: Tool) -> None:
        """Each tool brings the old versions itself, untimed."""
        board.anew(tool)
        for old in olds:
            once(bench, tool.build(board.push(tool, old)), tool.name)

    names = (peers.INPLACE, peers.RSYNC, peers.WHOLE, peers.CAT, peers.ANSIBLE_SYNC)
    case = Case(board.command, before, board.check, has=ground.has)
    title = f"{size_word(part)} changed in {size_word(size)}"
    title += ", version after version" if versions > 1 else ""
    result = board.measure(letter, title, names, case, peers.INPLACE)
    result.bars = (
        Bar("no slower than rsync --inplace, and atomic", CLI, (peers.INPLACE,), most=1.0),
    )
    result.notes.append(
        f"`{peers.INPLACE}` writes into the live file: whoever reads it meanwhile, or a power "
        "cut, sees a mixture; fleet and plain rsync rename a whole file"
    )
    if versions > 1:
        result.notes.append(
            "fleet writes over the version that no release needs any more, never the live one"
        )
    return result
