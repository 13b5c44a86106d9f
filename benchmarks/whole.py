"""`fleet profiles compare` on whole tables whose truth is known: `python -m benchmarks.whole`.

Every trial is four boards with five metrics each: records of runs and repeats with their boots and
times, compared by the function that ships. The noise is that of `benchmarks.ab`, value after value
in the order of time. Fixed seeds, one for each cell.

    python -m benchmarks.whole --into cells.jsonl               20 s a cell; goes on after a cut
    python -m benchmarks.whole --into cells.jsonl
"""

from __future__ import annotations

import argparse
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from benchmarks.ab import FAMILIES, Family
from fleet.model.conditions import Conditions
from fleet.model.record import Metrics, Record
from fleet.profiles.compare.comparing import MARGIN, compare, judged
from fleet.profiles.compare.gates import GateOutcome, judge_gates, parse
from fleet.profiles.compare.groups import group
from fleet.profiles.compare.verdict import MetricRow, Verdict
from fleet.profiles.stats.trend import Floats

TRIALS, BOARDS, NOISE = 1000, 4, 0.015
MARKS = ("<!-- whole -->", "<!-- whole end -->")
NAMES = ("init_ms", "ttft_ms", "prompt_tps", "decode_tps", "decode_ms")
CLAIMS = {Verdict.FASTER, Verdict.SLOWER, Verdict.HIGHER, Verdict.LOWER}
SILENT = {Verdict.INCOMPARABLE, Verdict.FEW, Verdict.DIFFERS}
GATE = parse("decode_tps<-5%")


@dataclass(frozen=True)
class Design:
    """How both sides were measured. `order`: runs in the order of time.

    `boots`: the boot of each of them. `hours` lie between one run and the next; where a boot
    differs its effect (`effect`, of the boot and day families) does, too.
    """

    name: str
    order: str
    boots: str
    repeats: int = 3
    hours: float = 0.1


def _turns(runs: int) -> str:
    return ("ABBA" * runs)[: 2 * runs]


IN_TURNS = Design("in turns, one boot", _turns(8), "a" * 16)
DESIGNS = (
    IN_TURNS,
    Design("in turns, a boot each", _turns(8), "abcdefghijklmnop", hours=1),
    Design("in turns, a day each", _turns(8), "abcdefghijklmnop", hours=24),
    Design("A, then B, one boot", "A" * 8 + "B" * 8, "a" * 16),
    Design("A, reboot, B", "A" * 8 + "B" * 8, "a" * 8 + "b" * 8),
    Design("one run of ten each", "AB", "aa", repeats=10),
)
EFFECTS = {"boots differ by 0.5 %": 0.005, "boots differ by 1.5 %": 0.015,
           "two days, 5 % apart": 0.05}  # fmt: skip


def values(
    rng: np.random.Generator, family: Family, design: Design, noise: float, changes: Floats
) -> Floats:
    """Boards, metrics, runs, repeats. `changes`: of B on each board, as a share."""
    rows, runs = len(changes) * len(NAMES), len(design.order)
    if family.name in EFFECTS:
        logs = noise * rng.standard_normal((rows, runs * design.repeats))
        effects = EFFECTS[family.name] * rng.standard_normal((rows, 26))
        places = [ord(boot) - ord("a") for boot in design.boots]
        logs += np.repeat(effects[:, places], design.repeats, axis=1)
    else:
        logs = family.noise(rng, rows, runs * design.repeats, noise)
    logs = logs.reshape(len(changes), len(NAMES), runs, design.repeats)
    later = np.array([side == "B" for side in design.order])
    logs *= np.where(later, family.unequal[1], family.unequal[0])[:, None]
    level = 10 * np.exp(rng.uniform(-0.05, 0.05, (len(changes), len(NAMES), 1, 1)))
    found = level * np.exp(logs)
    found[:, :, later] *= 1 + changes[:, None, None, None]
    if family.step:
        found = np.maximum(1, np.round(found / family.step)) * family.step
    return np.asarray(found)


def blanks(design: Design) -> list[list[Record]]:
    """Records without numbers, for each board in the order of time."""
    found = []
    for board in range(BOARDS):
        mine = []
        at = datetime(2026, 11, 1, tzinfo=UTC)
        for place, (side, boot) in enumerate(zip(design.order, design.boots, strict=True)):
            made = Record(
                run_id=f"run{place:02}", host=f"evk-{board}", name="llm",
                release=f"release-{side}", runner="genie", metrics=Metrics(),
                finish="eos", emulated=True, prompt_sha256="p", identity=f"board {board}",
                files={"model.bin": "m"}, facts={"soc": {"chip": "QCS9075"}},
                origin={"build_id": "2.50.0.1" if side == "A" else "2.51.0.1"},
                conditions=Conditions(boot_id=boot), seconds=10.0,
            )  # fmt: skip
            for repeat in range(design.repeats):
                mine.append(
                    structs.replace(made, repeat=repeat, started=f"{at:%Y-%m-%dT%H:%M:%SZ}")
                )
                at += timedelta(seconds=12)
            at += timedelta(hours=design.hours)
        found.append(mine)
    return found


def table(
    blank: list[list[Record]], numbers: Floats
) -> tuple[tuple[MetricRow, ...], tuple[MetricRow, ...], set[GateOutcome]]:
    """What the command says of these values; the same with a gate, and what becomes of that.

    The records get new numbers: making new ones takes longer than comparing them.
    """
    sides: dict[str, list[Record]] = {"A": [], "B": []}
    for records, board in zip(blank, numbers, strict=True):
        flat = board.reshape(len(NAMES), -1).T.tolist()
        for record, found in zip(records, flat, strict=True):
            numbered = Metrics(**dict(zip(NAMES, found, strict=True)))
            structs.force_setattr(record, "metrics", numbered)
            sides[record.release[-1]].append(record)
    whole = compare(group("A", sides["A"]), group("B", sides["B"]), NAMES)
    asked = [row for row in whole.rows if row.metric.name == GATE.metric]
    if any(row.verdict in SILENT for row in asked):
        return whole.rows, whole.rows, set()
    gated = replace(whole, rows=tuple(judged(whole.rows, MARGIN, {GATE.metric})))
    return whole.rows, gated.rows, {found.outcome for found in judge_gates([GATE], gated)}


@dataclass
class Cell:
    """Shares of tables: a row claims a change on a board that has none; every interval there
    is holds the truth; the same of a table with a gate on one metric of all boards, and that gate;
    rows with an interval at all; boards with a loss (`lost` of them): rows that are named.
    """

    design: str
    family: str
    noise: float
    loss: float
    lost: int
    trials: int
    false: float = 0.0
    held: float = 0.0
    gated_false: float = 0.0
    gated_held: float = 0.0
    told: float = 0.0
    tripped: float = 0.0
    unjudged: float = 0.0
    found: float = 0.0


SHARES = ("false", "held", "gated_false", "gated_held", "told", "tripped", "unjudged", "found")


def cell(family: Family, design: Design, loss: float, lost: int, trials: int) -> Cell:
    """So many tables; the first `lost` boards lose `loss`."""
    key = (family.name, design.name, NOISE, loss, *[lost] * (lost > 1))
    rng = np.random.default_rng(zlib.crc32(repr(key).encode()))
    made, blank = Cell(design.name, family.name, NOISE, loss, lost, trials), blanks(design)
    changes = np.zeros(BOARDS)
    changes[:lost] = -loss
    truth = {f"evk-{board}": float(change) for board, change in enumerate(changes)}
    for _ in range(trials):
        rows, gated, said = table(blank, values(rng, family, design, NOISE, changes))
        named = [row.verdict in CLAIMS for row in rows if truth[row.board]]
        for seen, before in ((rows, ""), (gated, "gated_")):
            false = any(row.verdict in CLAIMS and not truth[row.board] for row in seen)
            held = all(_holds(row, truth[row.board]) for row in seen)
            setattr(made, f"{before}false", getattr(made, f"{before}false") + false)
            setattr(made, f"{before}held", getattr(made, f"{before}held") + held)
        made.told += sum(row.verdict not in SILENT for row in rows) / len(rows)
        made.tripped += GateOutcome.TRIPPED in said
        made.unjudged += GateOutcome.UNJUDGED in said and GateOutcome.TRIPPED not in said
        made.found += sum(named) / max(1, len(named))
    for name in SHARES:
        setattr(made, name, round(getattr(made, name) / trials, 4))
    return made


def _holds(row: MetricRow, truth: float) -> bool:
    low, high = row.difference.low or 0.0, row.difference.high or 0.0
    return row.verdict in SILENT or low - 1e-9 <= truth <= high + 1e-9


SLOW = {"each .9 like the last", "sticky clocks, 6 %", "warms up, 10 %"}
HARD = {
    "in turns, a boot each": {"calm", *EFFECTS},
    "in turns, a day each": {"calm", *EFFECTS},
    "A, then B, one boot": SLOW,
    "A, reboot, B": {*EFFECTS},
    "one run of ten each": SLOW,
}
LOST = {"calm", "each .5 like the last", "two modes, 4 % apart", "outliers, 1 in 20 by 10 to 30 %"}


def cells() -> Iterator[tuple[Family, Design, float, int]]:
    """All that the page shows: of most designs the families that could fool them."""
    yield from ((family, IN_TURNS, 0.0, 0) for family in FAMILIES)
    for design in DESIGNS[1:]:
        yield from ((f, design, 0.0, 0) for f in FAMILIES if f.name in HARD[design.name])
    for lost in (1, BOARDS):
        yield from ((family, IN_TURNS, 0.08, lost) for family in FAMILIES if family.name in LOST)


def lines(found: list[dict[str, Any]]) -> list[str]:
    """The table of the page as lines of Markdown, in percent."""
    heads = ("measured", "noise of a row, 1.5 %", "claims a change, with a gate",
             "all intervals hold, with a gate", "rows with a verdict",
             "gate tripped / not judged", "loss named")  # fmt: skip
    made = [f"| {' | '.join(heads)} |", "|---|---|" + "---:|" * 5]
    for one in found:
        told = one["told"] > 0
        where = {0: "", 1: ", 8 % less on one board"}.get(one["lost"], ", 8 % less on all boards")
        cells = (
            one["design"] + where,
            one["family"],
            _both(one, "false") if one["lost"] < BOARDS else "-",
            _both(one, "held") if told else "-",
            f"{one['told']:.0%}",
            f"{one['tripped']:.1%} / {one['unjudged']:.1%}" if told else "-",
            f"{one['found']:.1%}" if one["loss"] else "-",
        )
        made.append(f"| {' | '.join(cells)} |")
    return made


def _both(found: dict[str, Any], name: str) -> str:
    shares = (found[name], found.get(f"gated_{name}"))  # cells of before have no second one
    return " / ".join(f"{share:.1%}" for share in shares if share is not None)


def main() -> None:
    """Measure cells into a file of JSON lines, or put those of files into a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--into", type=Path, nargs="+", required=True)
    parser.add_argument("--cells", default=":")
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    known = {(one["design"], one["family"], one["lost"]): one for one in _read(given.into)}
    first, _, last = given.cells.partition(":")
    wanted = [*cells()][int(first or 0) : int(last) if last else None]
    if given.write:
        keys = [(design.name, family.name, lost) for family, design, _, lost in wanted]
        text = "\n".join(lines([known[key] for key in keys if key in known]))
        inside = re.compile(re.escape(MARKS[0]) + ".*?" + re.escape(MARKS[1]), re.DOTALL)
        page = inside.sub(
            lambda _: f"{MARKS[0]}\n{text}\n{MARKS[1]}", given.write.read_text("utf-8")
        )
        given.write.write_text(page, "utf-8")
        return
    for family, design, loss, lost in wanted:
        if (design.name, family.name, lost) not in known:
            made = cell(family, design, loss, lost, given.trials)
            with given.into[0].open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(made)) + "\n")


def _read(paths: Iterable[Path]) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in paths
        if path.exists()
        for line in path.read_text("utf-8").splitlines()
    ]


if __name__ == "__main__":
    main()
