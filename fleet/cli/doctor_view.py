"""The page of a diagnosis: verdict, layers, cause with evidence, the cure, and how to check it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli import output
from fleet.cli.hints import completed
from fleet.cli.output import escape
from fleet.model.cause import LAYERS, Fix
from fleet.model.diagnosis import BAD, OK, UNKNOWN, WARN, Check, Diagnosis, Question, Ranked
from fleet.model.text import harmless
from fleet.triage.explain import Explained

if TYPE_CHECKING:
    from fleet.model.events import Event, Listener

_MARKS = {OK: "✓", WARN: "!", BAD: "✗", UNKNOWN: "?"}
_PLAIN = {"✓": "+", "✗": "x"}
_COLOURS = {OK: "green", WARN: "yellow", BAD: "red", UNKNOWN: "dim"}
_STATES = {"healthy": OK, "advice": WARN, "problem": BAD}
_VERDICTS = {
    "healthy": "[bold green]healthy[/]",
    "advice": "[bold yellow]works, with advice[/]",
    "problem": "[bold red]problem[/]",
    "could-not-check": "[bold red]could not check[/]",
    "not-recognised": "[bold yellow]not recognised[/]",
}
_NOTHING_SEEN = "[bold green]nothing wrong seen[/]"
_NO_SESSION = "[bold yellow]not fully checked[/]: no NPU session was opened"
_PAGES = 3  # more targets than this share a page
_OTHERS = 2  # causes that are listed after the first one
_EVIDENCE = 4
_LINE = 200
_CERTAIN = 0.6


@contextmanager
def counting(total: int) -> Iterator[Listener]:
    """Show a bar that counts devices on a terminal; show nothing elsewhere."""
    if not output.errors.is_terminal or total < 2:
        yield lambda _: None
        return
    from rich.progress import (  # noqa: PLC0415 - not needed for a log
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
    )

    from fleet.model.events import DeviceDone  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=output.errors, transient=True) as bar:
        task = bar.add_task("looking", total=total)

        def say(event: Event) -> None:
            if isinstance(event, DeviceDone):
                bar.advance(task)

        yield say


def show(
    every: Sequence[Diagnosis], *, log: bool = False, whole: bool = False, offers: bool = True
) -> None:
    """Print one line for each target, and cause and cure of each problem.

    Many targets share one page, with each cause once. `whole` shows all layers, `offers` the
    repairs that fleet can do.
    """
    if output.shape == "name":
        output.literal("\n".join(diagnosis.target for diagnosis in every))
    elif len(every) > _PAGES and not whole:
        _together(every)
    else:
        for diagnosis in every:
            _page(diagnosis, log=log, whole=whole, offers=offers)
    if len(every) > 1:
        counts = Counter(diagnosis.verdict for diagnosis in every)
        output.say(f"{len(every)} targets: " + ", ".join(f"{n} {v}" for v, n in counts.items()))


def _page(diagnosis: Diagnosis, *, log: bool, whole: bool, offers: bool) -> None:
    _head(diagnosis, log=log)
    _layers(check for check in diagnosis.checks if whole or check.status != OK)
    if diagnosis.verdict != "healthy" or log:
        _causes(diagnosis, offers=offers)
    for note in diagnosis.notes if whole or log or diagnosis.verdict != "healthy" else ():
        _line(f"  [dim]{escape(note)}[/]")
    _unknown(diagnosis)


def _unknown(diagnosis: Diagnosis) -> None:
    """Print what is known from a log that does not decide, and the next question."""
    for text in diagnosis.understood:
        _line(f"  [bold]means[/]  {escape(_short(text))}")
    for line in diagnosis.suspects:
        _line(f"  [dim]suspicious[/] line {line.line}: {escape(_short(line.text))}")
    for question in diagnosis.questions[:1]:
        first, *rest = question_lines(question)
        _line(f"  [bold]next[/]   {escape(first)}")
        for text in rest:
            _line(f"         {escape(text)}", paste=True)


def question_lines(question: Question) -> list[str]:
    """Return a question as lines: its text, its command, its leaves and how to answer it."""
    lines = [question.text, *completed(question.command).splitlines()]
    for number, leaf in enumerate(question.leaves, 1):
        check = f" (check: {completed(leaf.command)})" if leaf.command else ""
        lines.append(f"{number}. {leaf.cause}: {leaf.holds}{check}")
    how = f"answer with --answer {question.id}=CAUSE, or {question.id}=@FILE with the output"
    return [*lines, how] if question.leaves else lines


def _together(every: Sequence[Diagnosis]) -> None:
    """Print a line for each target, then each cause once.

    If some targets have a problem, the healthy ones share a line.
    """
    by_cause: dict[str, list[Diagnosis]] = {}
    well: dict[tuple[str, str], list[str]] = {}
    mixed = any(diagnosis.verdict != "healthy" for diagnosis in every)
    for diagnosis in every:
        if mixed and diagnosis.verdict == "healthy":
            well.setdefault(_state(diagnosis), []).append(diagnosis.target)
        else:
            _head(diagnosis)
        if diagnosis.causes and diagnosis.verdict != "healthy":
            by_cause.setdefault(diagnosis.causes[0].cause.id, []).append(diagnosis)
    for (mark, words), targets in well.items():
        _line(f"{mark}{words}: {escape(', '.join(targets))}")
    for name, those in by_cause.items():
        _shared(name, those)
    if by_cause:
        example = next(iter(by_cause.values()))[0].target
        output.say("for details: " + completed(f"fleet doctor --limit {shlex.quote(example)}"))


def _shared(name: str, those: Sequence[Diagnosis]) -> None:
    """Print a cause that several targets share in at most three lines."""
    first = those[0].causes[0]
    targets = ", ".join(diagnosis.target for diagnosis in those)
    _line(f"[bold]{escape(first.title)}[/] [dim]({name})[/]: {escape(targets)}")
    for evidence in first.evidence[:1]:
        _line(f"  [dim]seen[/]   {escape(_short(evidence.text.splitlines()[0]))}")
    for fix in first.fixes[:1]:
        commands = completed(fix.command).splitlines()
        _line(
            f"  [bold]fix[/]    {escape(fix.title)}"
            + escape(": " + commands[0] if commands else ""),
            paste=True,
        )


def _mark(status: str) -> str:
    mark = _MARKS[status]
    return f"[{_COLOURS[status]}]{output.drawn(mark, _PLAIN.get(mark, mark))}[/]"


def _head(diagnosis: Diagnosis, *, log: bool = False) -> None:
    mark, words = _state(diagnosis)
    _line(f"{'' if log else mark}[bold]{escape(diagnosis.target)}[/]  {words}")


def _state(diagnosis: Diagnosis) -> tuple[str, str]:
    """Return the mark and the words of the verdict."""
    emulated = " [dim](emulated)[/]" if diagnosis.emulated else ""
    ranked = diagnosis.causes[0] if diagnosis.causes else None
    first = f": {_sure(ranked)}{escape(ranked.title)}" if ranked else ""
    if diagnosis.verdict == "problem" and not diagnosis.causes:
        first = ": fleet knows no cause for this problem"
    verdict, state = _VERDICTS[diagnosis.verdict], _STATES.get(diagnosis.verdict, UNKNOWN)
    # A log, and a device for which only other checks were requested, have no session check.
    asked = {check.id for check in diagnosis.checks}
    if diagnosis.verdict == "healthy" and "session" not in asked:
        verdict, state = _NOTHING_SEEN, UNKNOWN
    if diagnosis.verdict == "could-not-check" and diagnosis.error is None:
        verdict, first = _NO_SESSION, ""
    return f"{_mark(state)} ", f"{verdict}{emulated}{first}"


def _sure(first: Ranked) -> str:
    """Return the words before a title if the log does not decide the cause."""
    if first.summary:
        return "the log does not show the cause of the failure; the most frequent cause is: "
    return "" if first.confidence >= _CERTAIN else "the most likely cause is: "


def _layers(checks: Iterable[Check]) -> None:
    rows = sorted(checks, key=lambda check: LAYERS.index(check.layer))
    for check in rows:
        text = _short(check.text)
        named = "" if check.id == check.layer else check.id
        _line(f"  {_mark(check.status)} {check.layer:8} {named:10} {escape(text)}")


def _causes(diagnosis: Diagnosis, *, offers: bool) -> None:
    for rank, ranked in enumerate(diagnosis.causes[: 1 + _OTHERS]):
        if rank == 0:
            _first(ranked, offers=offers)
        else:
            cause = ranked.cause
            how = f"{ranked.confidence:.0%}"
            _line(f"  [dim]less likely ({how}):[/] {escape(ranked.title)} [dim]({cause.id})[/]")


def _first(ranked: Ranked, *, offers: bool) -> None:
    cause = ranked.cause
    _line("")
    _line(
        f"  [bold]cause[/]  {escape(ranked.title)}  "
        f"[dim]{cause.id}, confidence {ranked.confidence:.0%}, layer {cause.layer}[/]"
    )
    _line(f"  {escape(' '.join(ranked.explanation.split()))}")
    for evidence in ranked.evidence[:_EVIDENCE]:
        where = f"line {evidence.line}" if evidence.line else evidence.source
        first, *more = evidence.text.split("\n")
        _line(f"  [dim]seen[/]   {escape(_short(where))}: {escape(_short(first))}")
        for text in more[:_EVIDENCE]:
            _line(f"         {escape(_short(text))}")
    for fix in ranked.fixes:
        if offers or not fix.steps:
            _fix(fix, _place(fix, ranked.facts.get("device.local", "no")))
    _line(f"  [bold]check[/]  {escape(completed(ranked.verify))}", paste=True)
    _line("")


def _place(fix: Fix, local: str) -> str:
    """Return where to type the command of a fix.

    A lab board that shares the libraries of this computer gets these from it. Its other files are
    in a folder of its own.
    """
    of_libraries = fix.when is not None and fix.when.fact == "library"
    here = local == "yes" or (local == "libraries" and of_libraries)
    return "this computer" if here and fix.where == "device" else fix.where


def _fix(fix: Fix, place: str) -> None:
    marks = [place]
    marks += ["needs root"] * fix.needs_root + ["reboot"] * fix.reboot
    marks += [] if fix.reversible else ["cannot be undone"]
    _line(f"  [bold]fix[/]    {escape(fix.title)} [dim]({', '.join(marks)})[/]")
    for text in completed(fix.command).splitlines():
        _line(f"         {escape(text)}", paste=True)
    for step in fix.steps:
        _line(f"         + {escape(_short(step))}")
    if fix.changes:
        undo = f"; back: {fix.undo}" if fix.undo else ""
        _line(f"         [dim]changes {escape(fix.changes + undo)}[/]")


def _short(text: str) -> str:
    plain = harmless(text)
    return plain if len(plain) <= _LINE else plain[: _LINE - 1] + "…"


def _line(text: str, *, paste: bool = False) -> None:
    """Print a line. `paste` is for text that is copied into a shell, so fleet adds no line ends."""
    if paste:
        output.marked(text)
    else:
        output.prose(text, markup=True)


def show_explained(explained: Explained) -> None:
    """Show the meanings of a code, and the causes behind it."""
    output.marked(f"[bold]{escape(harmless(explained.code))}[/]")
    for meaning in explained.meanings:
        names = ", ".join(meaning.names) or "fleet knows no name for this value"
        output.say(f"  {meaning.family}: {names}" + (f" ({meaning.note})" if meaning.note else ""))
    if not explained.meanings:
        output.say("  fleet does not know this code: no public QNN or FastRPC header defines it")
    if explained.causes:
        output.table(
            "causes of this code, the most frequent first",
            ("cause", "layer", "what is wrong"),
            [tuple(cause.values()) for cause in explained.named],
        )
        output.say(
            "to find out which cause applies, give fleet the whole log: fleet doctor --log FILE"
        )


@dataclass(frozen=True)
class ReportFlags:
    """The options of `fleet doctor` for its report."""

    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            "-y",
            help="Do not ask before --fix applies its steps or --bundle writes its file.",
        ),
    ] = False
    bundle: Annotated[
        Path | None,
        typer.Option(help="Also write all findings, in known words only, to this .tar.gz file."),
    ] = None
    assistant: Annotated[
        bool,
        typer.Option(
            "--for-assistant",
            help="Print facts, causes and evidence as one redacted text, to paste into any "
            "assistant. fleet sends nothing.",
        ),
    ] = False


def report(
    diagnoses: Sequence[Diagnosis],
    flags: ReportFlags,
    *,
    as_json: bool,
    log: bool = False,
    shown: bool = True,
    whole: bool = False,
    offers: bool = True,
) -> None:
    """Show the diagnoses, print them as JSON, or print the text for an assistant.

    Write the bundle too, after a question unless `--yes`. Show nothing if not `shown`.
    """
    if as_json and shown:
        output.emit_json({"schema": 1, "targets": diagnoses})
    elif flags.assistant:
        from fleet.doctor.bundle import for_assistant  # noqa: PLC0415 - words of the redaction

        output.literal(for_assistant(diagnoses))
    elif shown:
        show(diagnoses, log=log, whole=whole, offers=offers)
    if flags.bundle is not None:
        from fleet.cli.archives import send_out  # noqa: PLC0415 - tar and json
        from fleet.doctor.bundle import doctor_members  # noqa: PLC0415

        hint = "name another file: --bundle FILE"
        send_out(flags.bundle, doctor_members(diagnoses), hint=hint, yes=flags.yes, as_json=as_json)
