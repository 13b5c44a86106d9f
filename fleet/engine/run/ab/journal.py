"""The journal of an `ab`: a header with the questions, and the records of the runs.

`<runs>/<id>/ab.json` is written once. Pair n of a board is the two records of one try, in the runs
`<id>-n.<try>a` and `<id>-n.<try>b`. A record is written atomically, so a pair exists or does not,
however the process ended. A half pair is measured again in a new try.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct, field, structs

from fleet.model.errors import InputError, reason
from fleet.model.home import kept, private_folder, runs_home, write_private
from fleet.model.plain import read_plain, to_plain
from fleet.model.record import Record
from fleet.profiles.compare.sequential import Design, design_of, drawn
from fleet.profiles.runs import RunStore

NAME = "ab.json"
SETTINGS = "ab-settings.json"
SCHEMA = 1
_RUN = re.compile(r"-(\d{3})\.(\d+)([ab])$")


class Asked(Struct, frozen=True):
    """The questions of a comparison.

    `limits` maps a metric to a share; if it is empty, the first available metric counts. `a` and
    `b` are playbooks, bundles or releases, as the command line gave them. `boots` is the number of
    boots over which the pairs up to the first look are spread; later pairs continue like that.
    `sustained` is the seconds that each side runs in a pair, 0 for one run. `order` has for each
    host the side with which each pair begins, drawn with the run id as seed.
    """

    a: str
    b: str
    playbook: str
    inventory: str
    hosts: tuple[str, ...]
    limits: Mapping[str, float]
    boots: int = 1
    sustained: float = 0.0
    order: Mapping[str, str] = field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def design(self) -> Design:
        """The looks of the comparison, and the chance of error for each board and for all
        together.
        """
        return design_of(len(self.hosts), sustained=bool(self.sustained))

    @property
    def family(self) -> int:
        """The number of questions: gates times boards."""
        return max(1, len(self.limits)) * len(self.hosts)


@dataclass(frozen=True)
class Pair:
    """A run of A and a run of B, measured in immediate succession."""

    number: int
    a: Record
    b: Record


@dataclass(frozen=True)
class Try:
    """An attempt at a pair. A side that did not run, or whose process was killed, is None."""

    number: int
    a: Record | None
    b: Record | None

    @property
    def pair(self) -> Pair | None:
        """The pair; None unless both sides ran and both runs count."""
        if self.a is None or self.b is None or not (self.a.counts and self.b.counts):
            return None
        return Pair(self.number, self.a, self.b)


class AbJournal:
    """The open journal of one `ab`, locked for one process."""

    def __init__(self, store: RunStore, run_id: str, asked: Asked, file: int) -> None:
        self.store, self.run_id, self.asked, self._file = store, run_id, asked, file

    @classmethod
    def begin(cls, store: RunStore, run_id: str, asked: Asked) -> AbJournal:
        """Write a new journal and open it. Raises WorkstationError if it cannot be written."""
        order = {host: drawn(f"{run_id} {host}", asked.design) for host in asked.hosts}
        asked = structs.replace(asked, order=order)
        path = store.root / run_id / NAME
        part = path.with_name(f"{NAME}.part")
        with kept(path):
            private_folder(path.parent)
            write_private(part, json.dumps(to_plain(asked), indent=1))
            part.replace(path)
        return cls.reopen(store, run_id)

    @classmethod
    def reopen(cls, store: RunStore, run_id: str) -> AbJournal:
        """Open and lock the journal of a comparison to resume.

        Raises InputError if it is missing or unreadable, or if another process has it open.
        """
        path = store.root / run_id / NAME
        try:
            asked = read_plain(Asked, json.loads(path.read_text("utf-8")), NAME, "")
            if asked.schema != SCHEMA:
                raise ValueError("another version of fleet wrote its journal")
            file = os.open(path, os.O_RDONLY)
        except (OSError, ValueError, InputError) as error:
            raise InputError(
                f"cannot resume the comparison '{run_id}', with the journal {path}: "
                f"{reason(error)}",
                hint="check the run id; fleet ab A B (starts a new comparison)",
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(file)
            raise InputError(
                f"another fleet process is already working on the comparison {run_id}",
                hint="wait until that process ends",
            ) from error
        return cls(store, run_id, asked, file)

    def hold(self, settings: Mapping[str, Mapping[str, str]]) -> None:
        """Store the run settings of each side at the first call.

        A later call belongs to a resumed comparison; it raises InputError if a setting has changed.
        """
        path = self.store.root / self.run_id / SETTINGS
        if not path.exists():
            with kept(path):
                write_private(path, json.dumps(settings, indent=1))
            return
        earlier = json.loads(path.read_text("utf-8"))
        for side, now in settings.items():
            before = earlier.get(side, {})
            for key in sorted(now.keys() & before.keys()):
                if now[key] != before[key]:
                    raise InputError(
                        f"`run: {key}` of {side} is not what {self.run_id} measured: "
                        f"{now[key][:60]!r} now, {before[key][:60]!r} before",
                        hint=f"restore the playbook of {side}; or begin a new comparison: "
                        "fleet ab A B",
                    )

    @property
    def resume_line(self) -> str:
        """The command that continues this comparison, or prints its table again."""
        root = self.store.root
        folder = "" if root == runs_home() else f" --output {root}"
        return f"fleet ab --resume {self.run_id}{folder}"

    def close(self) -> None:
        """Unlock and close the journal."""
        os.close(self._file)

    def pairs(self, host: str) -> list[Pair]:
        """Return the complete pairs of a board in their order."""
        return pairs_of(self.tries(host))

    def tries(self, host: str) -> list[Try]:
        """Return all tries of a board, in the order in which they were measured."""
        sides: dict[tuple[int, int], dict[str, Record]] = {}
        for number, turn, side, record in self._records(host):
            sides.setdefault((number, turn), {})[side] = record
        return [
            Try(number, both.get("a"), both.get("b")) for (number, _), both in sorted(sides.items())
        ]

    def order(self, host: str, number: int) -> str:
        """Return the order of a pair, AB or BA; journals of earlier versions have ABBA."""
        order = self.asked.order.get(host) or "AB" * (number // 2 + 1)
        return "AB" if order[number] == "A" else "BA"

    def run_ids(self, host: str, number: int) -> tuple[str, str]:
        """Return the run ids of A and B for a pair that is measured now."""
        stem = f"{self.run_id}-{number:03}."
        tried = [
            int(match[2])
            for path in self.store.root.glob(f"{stem}*/{host}")
            if (match := _RUN.search(path.parent.name))
        ]
        turn = max(tried, default=-1) + 1
        return f"{stem}{turn}a", f"{stem}{turn}b"

    def _records(self, host: str) -> Iterator[tuple[int, int, str, Record]]:
        for path in sorted(self.store.root.glob(f"{self.run_id}-*/{host}/0/record.json")):
            match = _RUN.search(path.parents[2].name)
            if match:
                record = Record.from_dict(json.loads(path.read_text("utf-8")))
                yield int(match[1]), int(match[2]), match[3], record


def pairs_of(tries: Sequence[Try]) -> list[Pair]:
    """Return the complete pairs of these tries by number; the first one of each number."""
    whole: dict[int, Pair] = {}
    for pair in filter(None, (attempt.pair for attempt in tries)):
        whole.setdefault(pair.number, pair)
    return [whole[number] for number in sorted(whole)]


def releases(tries: Sequence[Try], side: str) -> set[str]:
    """Return the ids of the releases that a side, A or B, had in these tries."""
    records = [attempt.a if side == "A" else attempt.b for attempt in tries]
    return {record.release for record in records if record is not None}


def missing(pairs: Sequence[Pair]) -> int:
    """Return the number of the next pair."""
    done = {pair.number for pair in pairs}
    return next(number for number in range(len(done) + 1) if number not in done)
