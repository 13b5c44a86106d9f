"""The archive of a selftest: results without secrets, which anybody can read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from fleet.doctor.bundle import kept
from fleet.doctor.parts import own_words
from fleet.doctor.redaction import Redactor
from fleet.model.plain import to_plain
from fleet.model.version import VERSION
from fleet.selftest.ladder import FELL, HOLDS, UNDECIDED, Climbed, RungResult, assumptions

_HOW = """\
A ladder of questions was put to this device by `fleet selftest` {version}, a program that brings
models to boards and phones with a Qualcomm NPU. Each question, a rung, *holds*, *does not hold*, or
is *not decided* for the reason given; one that stands on a fallen rung is not decided either. What
fleet takes for true rests on one rung each. `raw/` has what the device said of itself, `rungs/`
what was said on each rung: of a check fleet's words (`#`), the command that shows the same (`$`),
and in short what was seen; elsewhere the words of the device's own programs. `<word-1>`,
`<user-1>`, `device-1` and the like stand for what was replaced: the same text by the same one.
"""
_TELLING = re.compile(r"(?<!ti)rpc|dsp|qairt|libqnn")  # of the packages


def selftest_members(every: Sequence[Climbed]) -> dict[str, str]:
    """Return the files of the archive by name, redacted for strangers."""
    own = {pair for climbed in every for pair in own_words(climbed.facts)}
    redactor = Redactor([climbed.host for climbed in every], sorted(own))
    return {
        f"selftest/device-{number}/{name}": text
        for number, climbed in enumerate(every, 1)
        for name, text in _members(climbed, redactor)
    }


def _members(climbed: Climbed, redactor: Redactor) -> Iterator[tuple[str, str]]:
    yield "summary.md", redactor.text("\n".join(_summary(climbed)) + "\n")
    data = to_plain(climbed)
    for rung in data["rungs"]:
        del rung["cure"]  # a command for this workstation, with its paths
    yield "selftest.json", redactor.json(data)
    for name, text in kept(climbed.parts, redactor).items():
        yield f"raw/{name}.{'json' if name == 'facts' else 'txt'}", text
    for step in climbed.steps:
        if step.words.strip():
            yield _member(climbed, step), redactor.text(step.words)


def _member(climbed: Climbed, step: RungResult) -> str:
    return f"rungs/{climbed.steps.index(step) + 1:02}-{step.rung.id}.txt"


def board_line(climbed: Climbed) -> str:
    """Return the board in one line: model, chip, arch, system."""
    facts = climbed.facts
    android = facts.android
    model = facts.soc.model or (f"{android.manufacturer} {android.model}" if android else "")
    system = f"Android {android.release}" if android else facts.os_name
    arch = facts.soc.hexagon_arch or "unknown Hexagon"
    chip = f"{facts.soc.chip or 'unknown chip'} ({arch})"
    kernel = f"kernel {facts.kernel}" + " (of the emulation)" * facts.emulated
    return ", ".join(filter(None, [model, chip, system, kernel]))


def counted(climbed: Climbed) -> str:
    """Return the number of rungs for each outcome."""
    number = Counter(step.status for step in climbed.steps)
    return f"{number[HOLDS]} hold, {number[FELL]} do not hold, {number[UNDECIDED]} are not decided"


def _summary(climbed: Climbed) -> Iterator[str]:
    facts = climbed.facts
    yield f"# Selftest of {climbed.host}\n"
    yield f"- **Board:** {board_line(climbed)}"
    if facts.emulated:
        yield "- **Emulated: true.** This is no real board; nothing here is said of an NPU. Kernel,"
        yield "  mounts, kernel log and times are those of the emulation."
    yield f"- **C library:** {facts.libc} {facts.libc_version or ''}".rstrip()
    yield f"- **soc_id of the kernel:** {facts.soc.kernel_soc_id}"
    yield f"- **QAIRT:** {climbed.runtime or 'none was given'}"
    yield f"- **fleet:** {VERSION}"
    for line in filter(_TELLING.search, climbed.parts.get("packages", "").splitlines()):
        yield f"- package {line.strip()}"
    if climbed.ended:
        yield f"- **Ended early** after {len(climbed.steps)} rungs: {_cell(climbed.ended)}"
    first = climbed.first
    if first is None:
        yield f"- **First broken assumption:** none{' before that' * bool(climbed.ended)}"
    else:
        step, row = first
        yield f'- **First broken assumption:** {row.id}, "{row.statement}" ({row.symbol})'
        yield f"  - it rests on the rung `{step.rung.id}`: {step.rung.asks}"
        yield f"  - expected: {step.expected}; seen: {_cell(step.observed)}"
        whose, raw = (
            ("fleet's", ", the device's own: `raw/`") if step.rung.checks else ("the device's", "")
        )
        yield f"  - {whose} words: `{_member(climbed, step)}`{raw}"
        yield "  - **next:** `fleet doctor -i INVENTORY -l NAME` names the cause and a cure of each"
    yield f"- **Rungs:** {counted(climbed)}"
    yield f"\n## How to read it\n\n{_HOW.format(version=VERSION)}"
    yield "## The ladder\n\n| rung | asks | outcome | expected | seen, or why not | s |"
    yield "|---|---|---|---|---|---|"
    for step in climbed.steps:
        row_of = (
            step.rung.id,
            step.rung.asks,
            step.status,
            step.expected,
            step.observed or step.reason,
        )
        yield f"| {' | '.join(map(_cell, row_of))} | {step.seconds:.1f} |"
    yield "\n## What fleet takes for true\n\n| | assumption | outcome | where fleet relies on it |"
    yield "|---|---|---|---|"
    by_rung = {step.rung.id: step for step in climbed.steps}
    for row in assumptions():
        if row.rung in by_rung:
            where = f"`{row.symbol}`"
            yield f"| {row.id} | {row.statement} | {by_rung[row.rung].status} | {where} |"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())[:300]
