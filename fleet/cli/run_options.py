"""Options of `fleet run` that stand in for values of the playbook."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fleet.cli.options import house
from fleet.model.deadline import parse_duration
from fleet.model.errors import InputError
from fleet.model.files import told
from fleet.model.gates import LEAST_REPEATS, CoolSpec, UntilSpec, parse_celsius, parse_percent
from fleet.model.playbook import Playbook, RunSpec

Prompt = Annotated[
    str | None, typer.Option(help="Text of the prompt; default: the prompt of the playbook.")
]
PromptFile = Annotated[Path | None, typer.Option(help="File that contains the prompt.")]
Repeats = Annotated[
    int | None,
    typer.Option(min=1, help="Number of measured runs on each device.", callback=house("repeats")),
]
Warmups = Annotated[
    int | None, typer.Option(min=0, help="Number of warm-up runs before the measured ones.")
]
MaxTokens = Annotated[int | None, typer.Option(min=1, help="Generate at most this many tokens.")]
Timeout = Annotated[str | None, typer.Option(help="Time limit of one run: 90s, 5m.")]
Cool = Annotated[
    str | None, typer.Option(help="Wait before each run until the device is cooler: 45C.")
]
Until = Annotated[
    str | None,
    typer.Option(
        help="Repeat the run until the 95 % confidence interval of the main metric is "
        "narrower than "
        "this share of its median, like 3%."
    ),
]
Sustained = Annotated[
    str | None,
    typer.Option(
        help="Repeat the run without pauses for this long, like 10m (shows thermal throttling)."
    ),
]
Tags = Annotated[
    list[str] | None,
    typer.Option(
        "--tag", help="Give the results this tag, to select them by tag:NAME. Repeatable."
    ),
]


# Five runs are the fewest that have an interval; of warm-ups: docs/measuring.md.
UNSAID: dict[str, dict[str, object]] = {
    "repeats": {"repeats": LEAST_REPEATS}, "warmups": {"warmups": 2, "settle": 2}
}  # fmt: skip


def measured(
    playbook: Playbook, changes: dict[str, object], *, sustained: bool
) -> dict[str, object]:
    """The changes, with what neither playbook nor command line says about how often it runs."""
    run = playbook.run or RunSpec()
    for name in run.unsaid:
        if changes[name] is None and not (name == "repeats" and (sustained or run.sustained)):
            changes = changes | UNSAID[name]
    return changes


def prompt_of(text: str | None, path: Path | None) -> str | None:
    """The prompt of the command line. Raises InputError."""
    if text is not None and path is not None:
        raise InputError(
            "--prompt and --prompt-file cannot be combined", hint="remove one of the two"
        )
    if path is None:
        return text
    with told(path):
        return path.read_text("utf-8")


def changed(playbook: Playbook, changes: dict[str, object]) -> Playbook:
    """The playbook with other values in its `run:`; None is no value."""
    given = {name: value for name, value in changes.items() if value is not None}
    if not playbook.run and "prompt" not in given:
        return playbook
    return replace(playbook, run=replace(playbook.run or RunSpec(), **given))  # type: ignore[arg-type]


def gated(
    playbook: Playbook, cool: str | None, until: str | None, sustained: str | None
) -> Playbook:
    """The playbook with these gates in its `run:`. Raises InputError."""
    if until is not None and sustained is not None:
        raise InputError("--until and --sustained cannot be combined", hint="remove one of the two")
    run = playbook.run
    if run is None:
        return playbook
    if cool is not None:
        below = parse_celsius(cool)
        run = replace(run, cool=replace(run.cool or CoolSpec(below), below=below))
    if until is not None:
        narrower = parse_percent(until)
        spec = replace(run.until or UntilSpec(narrower), narrower=narrower)
        spec = replace(spec, at_most=max(spec.at_most, run.repeats))
        run = replace(run, until=spec, sustained=None)
    if sustained is not None:
        run = replace(run, until=None, sustained=parse_duration(sustained))
    if run.until is not None and run.until.at_most < run.repeats:
        raise InputError(
            f"`until: at_most:` in the playbook allows {run.until.at_most} runs, but --repeats "
            f"asks for {run.repeats}",
            hint="raise `until: at_most:` in the playbook, or give a smaller --repeats",
        )
    return replace(playbook, run=run)
