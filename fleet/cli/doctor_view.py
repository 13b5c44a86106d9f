"""A diagnosis on a page: verdict, layers, cause with evidence, the cure, how to check."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from fleet.cli import output
from fleet.cli.hints import completed
from fleet.doctor.bundle import pack
from fleet.model.cause import LAYERS, Fix
from fleet.model.diagnosis import BAD, OK, UNKNOWN, WARN, Check, Diagnosis, Ranked
from fleet.model.events import DeviceDone, Event, Listener
from fleet.model.text import harmless
from fleet.triage.explain import Explained

_MARKS = {OK: "[green]✓[/]", WARN: "[yellow]![/]", BAD: "[red]✗[/]", UNKNOWN: "[dim]?[/]"}
_VERDICTS = {
    "healthy": "[bold green]healthy[/]",
    "advice": "[bold yellow]works, with advice[/]",
    "problem": "[bold red]problem[/]",
    "could-not-check": "[bold red]could not check[/]",
    "not-recognised": "[bold yellow]not recognised[/]",
}
_NOTHING_SEEN = "[bold green]nothing wrong seen[/]"
_NO_SESSION = "[bold yellow]not checked[/]: no NPU session was opened"
_OTHERS = 2  # causes that are named behind the first one
_EVIDENCE = 4
_LINE = 200
_CERTAIN = 0.6


@contextmanager
def counting(total: int) -> Iterator[Listener]:
    """A bar that counts devices, on a terminal; nothing elsewhere."""
    if not output.errors.is_terminal or total < 2:
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=output.errors, transient=True) as bar:
        task = bar.add_task("looking", total=total)

        def say(event: Event) -> None:
            if isinstance(event, DeviceDone):
                bar.advance(task)

        yield say


def show(every: Sequence[Diagnosis], *, log: bool = False) -> None:
    """One page a target that is not healthy; healthy ones on a line each."""
    for one in every:
        _head(one)
        if one.verdict == "healthy" and not log:
            _layers([check for check in one.checks if check.status != OK])
        else:
            _layers(one.checks)
            _causes(one)
        for note in one.notes:
            _line(f"  [dim]{escape(note)}[/]")
    if len(every) > 1:
        counts: dict[str, int] = {}
        for one in every:
            counts[one.verdict] = counts.get(one.verdict, 0) + 1
        output.say(f"{len(every)} targets: " + ", ".join(f"{n} {v}" for v, n in counts.items()))


def _head(one: Diagnosis) -> None:
    emulated = " [dim](emulated)[/]" if one.emulated else ""
    first = f": {_sure(one.causes[0])}{escape(one.causes[0].cause.title)}" if one.causes else ""
    if one.verdict == "problem" and not one.causes:
        first = ": no cause that is known fits"
    verdict = _VERDICTS[one.verdict]
    # Of a log, and of a device where only other checks were asked for.
    if one.verdict == "healthy" and not any(check.id == "session" for check in one.checks):
        verdict = _NOTHING_SEEN
    if one.verdict == "could-not-check" and one.error is None:
        verdict, first = _NO_SESSION, ""
    _line(f"[bold]{escape(one.target)}[/]  {verdict}{emulated}{first}")


def _sure(first: Ranked) -> str:
    """A title is no verdict where the log does not decide."""
    if first.summary:
        return "the log ends before its cause; most often: "
    return "" if first.confidence >= _CERTAIN else "most likely: "


def _layers(checks: Iterable[Check]) -> None:
    rows = sorted(checks, key=lambda check: LAYERS.index(check.layer))
    for check in rows:
        text = _short(check.text)
        _line(f"  {_MARKS[check.status]} {check.layer:8} {check.id:10} {escape(text)}")


def _causes(one: Diagnosis) -> None:
    for rank, ranked in enumerate(one.causes[: 1 + _OTHERS]):
        if rank == 0:
            _first(ranked, one)
        else:
            cause = ranked.cause
            how = f"{ranked.confidence:.0%}"
            _line(f"  [dim]less likely ({how}):[/] {escape(cause.title)} [dim]({cause.id})[/]")


def _first(ranked: Ranked, one: Diagnosis) -> None:
    cause = ranked.cause
    _line("")
    _line(
        f"  [bold]cause[/]  {escape(cause.title)}  "
        f"[dim]{cause.id}, confidence {ranked.confidence:.0%}, layer {cause.layer}[/]"
    )
    _line(f"  {escape(' '.join(cause.explanation.split()))}")
    for evidence in ranked.evidence[:_EVIDENCE]:
        where = f"line {evidence.line}" if evidence.line else evidence.source
        first, *more = evidence.text.split("\n")
        _line(f"  [dim]seen[/]   {escape(_short(where))}: {escape(_short(first))}")
        for text in more[:_EVIDENCE]:
            _line(f"         {escape(_short(text))}")
    for twin in _twins(ranked, one):
        _line(f"  [bold]or[/]     {escape(twin)}")
    for fix in ranked.fixes:
        _fix(fix)
    verify = cause.verify
    if one.checks:  # of a device, not of a log
        verify = verify.replace("--limit DEVICE", f"--limit {shlex.quote(one.target)}")
    _line(f"  [bold]check[/]  {escape(completed(verify))}")
    if any(fix.apply for fix in ranked.fixes) and not one.target.startswith("-") and one.checks:
        _line(
            "  [bold]or let fleet do it:[/] "
            + escape(completed(f"fleet doctor --fix --dry-run --limit {one.target}"))
        )
    _line("")


def _twins(ranked: Ranked, one: Diagnosis) -> list[str]:
    """Causes with the same log: only where nothing but a log was there to tell."""
    if any(check.facts for check in one.checks):
        return []
    return [
        f"{twin.cause}: the same log; `{twin.command}` tells: {twin.reading}"
        for twin in ranked.twins
    ]


def _fix(fix: Fix) -> None:
    marks = [fix.where]
    marks += ["needs root"] * fix.needs_root + ["reboot"] * fix.reboot
    marks += [] if fix.reversible else ["no way back"]
    _line(f"  [bold]fix[/]    {escape(fix.title)} [dim]({', '.join(marks)})[/]")
    for text in completed(fix.command).splitlines():
        _line(f"         {escape(text)}")


def _short(text: str) -> str:
    plain = harmless(text)
    return plain if len(plain) <= _LINE else plain[: _LINE - 1] + "…"


def _line(text: str) -> None:
    output.console.print(text, markup=True, soft_wrap=True)


def show_explained(found: Explained) -> None:
    """What a code means, and the causes behind it."""
    output.console.print(f"[bold]{escape(harmless(found.code))}[/]", markup=True)
    for one in found.meanings:
        names = ", ".join(one.names) or "no name is known"
        output.say(f"  {one.family}: {names}" + (f" ({one.note})" if one.note else ""))
    if not found.meanings:
        output.say("  unknown: no public header that fleet has read names it")
    if found.causes:
        output.table(
            "causes that show it, the most frequent first",
            ("cause", "layer", "what is wrong"),
            [(one.id, one.layer, one.title) for one in found.causes],
        )
        output.say("paste the whole log for the one that it is: fleet doctor --log FILE")


def report(
    found: Sequence[Diagnosis],
    *,
    as_json: bool,
    bundle: Path | None,
    log: bool = False,
    shown: bool = True,
) -> None:
    """Show or print them; `bundle` is written, too."""
    if as_json and shown:
        output.emit_json({"schema": 1, "targets": [one.as_dict() for one in found]})
    elif shown:
        show(found, log=log)
    if bundle is not None:
        pack(found, bundle)
        output.note(f"packed {bundle}; read it before you send it")
