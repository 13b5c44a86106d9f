"""`fleet doctor`: the cause of a problem, on live devices or from a pasted log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fleet.cli import options as opt
from fleet.cli import output, project
from fleet.cli.doctor_view import ReportFlags, question_lines, report, show_explained
from fleet.model.diagnosis import (
    ADVICE,
    HEALTHY,
    PROBLEM,
    UNCHECKED,
    UNRECOGNISED,
    Diagnosis,
    Question,
)
from fleet.model.errors import InputError
from fleet.model.text import harmless
from fleet.triage.asking import check_ids
from fleet.triage.explain import explain
from fleet.triage.knowledge import knowledge
from fleet.triage.text import MAX_BYTES, decode
from fleet.triage.triage import triage

# Questions of the doctor on a terminal: each answer changes the ranking of the causes.

_MOST = 4
Look = Callable[[Mapping[str, str]], Diagnosis]


def given(answers: Sequence[str] | None) -> dict[str, str]:
    """Parse `ID=CAUSE` or `ID=@FILE` of the command line.

    Raises InputError for another form, and for an ID that no question has.
    """
    parsed = {}
    for text in answers or ():
        key, _, word = text.partition("=")
        if not key or not word:
            raise InputError(
                f"--answer '{text}' does not have the form ID=CAUSE or ID=@FILE",
                hint="repeat the command with the ID that the question shows: --answer ID=CAUSE",
            )
        parsed[key] = _content(word[1:]) if word.startswith("@") else word
    if parsed:
        check_ids(parsed, knowledge())
    return parsed


def _content(name: str) -> str:
    try:
        return Path(name).read_text("utf-8", "replace")
    except OSError as error:
        raise InputError(
            f"the file {name} of --answer cannot be read: {error.strerror or error}",
            hint="give the path of an existing file: --answer ID=@FILE",
        ) from error


def asked(look: Look, answers: dict[str, str], *, quiet: bool) -> Diagnosis:
    """Return the diagnosis after a person at the terminal has answered, without questions if
    `quiet`.
    """
    diagnosis = look(answers)
    if quiet or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return diagnosis
    for _ in range(_MOST):
        question = next(iter(diagnosis.questions), None)
        if question is None or not question.leaves:
            break
        answer = _ask(question)
        if not answer:
            break
        answers[question.id] = answer
        diagnosis = look(answers)
    return diagnosis


def _ask(question: Question) -> str:
    """Return the cause that the person chose, or "" if the person does not know."""
    output.say("\n".join(question_lines(question)))
    word = str(typer.prompt("number, or Enter to skip", default="", show_default=False)).strip()
    at = int(word) - 1 if word.isdecimal() else -1
    return question.leaves[at].cause if 0 <= at < len(question.leaves) else ""


_INVENTORY = typer.Option("--inventory", "-i", help="Examine the devices of this inventory.")
_PLATFORMS = ("linux", "android", "windows")


@dataclass(frozen=True)
class DoctorFlags:
    """The options of `fleet doctor` as typed, in the order of its help."""

    host: opt.Hosts = None
    limit: opt.Limit = None
    log: Annotated[
        list[str] | None,
        typer.Option(help="Explain this log file instead of a device; - is standard input."),
    ] = None
    explain_code: Annotated[
        str | None, typer.Option("--explain", help="Explain an error code: 14001, 0x80000406, -8.")
    ] = None
    listed: Annotated[bool, typer.Option("--list", help="List all checks and known causes.")] = (
        False
    )
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Run only this check, or all checks of this layer (names: --list). Repeatable."
        ),
    ] = None
    folder: Annotated[
        list[str] | None,
        typer.Option(help="Check this folder on the device, with a QAIRT that you copied by hand."),
    ] = None
    platform: Annotated[
        str, typer.Option(help="With --log: system of the device: linux, android or windows.")
    ] = ""
    answer: Annotated[
        list[str] | None,
        typer.Option(
            help="With --log: answer a question that the doctor printed, by its ID: ID=CAUSE, or "
            "ID=@FILE with the output that it asks for."
        ),
    ] = None
    session: Annotated[
        bool,
        typer.Option(
            "--session/--no-session",
            help="Test whether an NPU session opens (default), or skip this test.",
        ),
    ] = True
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare the SHA-256 of all deployed files (slow).")
    ] = False
    fix: Annotated[
        bool, typer.Option("--fix", help="Repair the device: show the steps, ask, then apply them.")
    ] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --fix: only show the steps.")] = (
        False
    )
    playbook: Annotated[
        Path | None, typer.Option(help="With --fix: the playbook to deploy again.")
    ] = None
    report: ReportFlags = field(default_factory=ReportFlags)
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Exit with status 2 instead of 0 if the doctor found no problem but gives advice.",
        ),
    ] = False
    parallel: opt.Parallel = None
    accept_new: opt.AcceptNew = False
    verbose: opt.Verbose = False


@opt.spread
def doctor(
    inventory: Annotated[Path | None, _INVENTORY] = None,
    *,
    flags: DoctorFlags,
    as_json: opt.Json = False,
) -> None:
    """Find out what is wrong: devices (-i), a pasted log (--log), an error code (--explain).

    -v shows every check. With -i and --log, checks on the device help to find the cause.
    Exit code 0 healthy, 1 problem, 2 advice with --strict, 3 not checked, 5 log not recognised.

    Example: fleet doctor -i evks.yaml --limit evk-07
    Example: genie-t2t-run ... 2>&1 | fleet doctor --log -
    Example: fleet doctor --explain 14001
    """
    inventory = _one_of(inventory, flags)
    if flags.explain_code is not None:
        return _explain(flags.explain_code, as_json=as_json)
    if flags.log and inventory is None:
        return _end(_logs(flags.log, flags, as_json=as_json), strict=flags.strict)
    from fleet.cli import common, doctor_devices  # noqa: PLC0415 - most of a deploy
    from fleet.doctor.examine import Round  # noqa: PLC0415

    if flags.listed:
        return doctor_devices.show_known(as_json=as_json)
    how = Round(
        doctor_devices.known(flags.only or []),
        tuple(flags.folder or ()),
        flags.verify,
        flags.session,
        flags.accept_new,
        flags.parallel or common.DEFAULT_PARALLEL,
        "\n".join(map(_text, flags.log or ())),
        bool(flags.report.bundle),
    )
    asked = None
    if flags.fix:
        yes = flags.report.yes
        asked = doctor_devices.FixRequest(flags.playbook, flags.dry_run, yes, as_json)
    limit = [*(flags.host or ()), *(flags.limit or ())]
    diagnoses = doctor_devices.look(
        inventory or Path(), limit, how, asked, flags.report, as_json=as_json, whole=flags.verbose
    )
    return _end(diagnoses, strict=flags.strict)


def _no_answers(answer: list[str] | None) -> None:
    """Raise InputError for answers without a log."""
    if answer:
        raise InputError(
            "--answer works only with --log, and without -i",
            hint="give the log with --log FILE, and leave out -i",
        )


def _one_of(inventory: Path | None, flags: DoctorFlags) -> Path | None:
    """Return the inventory or, with nothing to examine, the project's. Raises InputError."""
    log, code, listed = flags.log, flags.explain_code, flags.listed
    if not (log or code or listed):
        inventory = inventory or project.supplied("inventory")
    given = sum((inventory is not None or bool(log), code is not None, listed))
    if given != 1:
        raise InputError(
            "-i or --log, --explain and --list cannot be combined"
            if given
            else (
                "the doctor does not know what to examine: the command has no -i, --log or "
                f"--explain, and {_why_not_supplied()}"
            ),
            hint="use one of: fleet doctor -i inventory.yaml, fleet doctor --log "
            "FILE, fleet doctor --explain 14001, fleet init",
        )
    if inventory is not None or not log:
        _no_answers(flags.answer)
    return inventory


def _why_not_supplied() -> str:
    """Return why no project names the inventory."""
    current_project = project.current()
    if current_project is None:
        return "this folder is not in a fleet project"
    return f"{current_project.file} names no inventory"


def _logs(names: Sequence[str], flags: DoctorFlags, *, as_json: bool) -> list[Diagnosis]:
    platform, assistant = flags.platform, flags.report.assistant
    if platform and platform not in _PLATFORMS:
        raise InputError(
            f"'{platform}' is not a platform", hint=f"use one of {', '.join(_PLATFORMS)}"
        )
    diagnoses, answers = [], given(flags.answer)
    for name in names:
        look = partial(_triage, _text(name), name, platform)
        diagnoses.append(asked(look, answers, quiet=as_json or assistant or name == "-"))
    report(diagnoses, flags.report, as_json=as_json, log=True)
    return diagnoses


def _triage(text: str, name: str, platform: str, answers: Mapping[str, str]) -> Diagnosis:
    return triage(text, name, platform=platform, answers=answers)


def _text(name: str) -> str:
    if name == "-":
        return decode(sys.stdin.buffer.read(MAX_BYTES))
    try:
        with Path(name).open("rb") as stream:
            return decode(stream.read(MAX_BYTES))
    except OSError as error:
        raise InputError(
            f"the log {name} cannot be read: {error.strerror or error}",
            hint="give the path of a log file, or - for standard input",
        ) from error


def _explain(code: str, *, as_json: bool) -> None:
    explanation = explain(harmless(code))
    if as_json:
        output.emit_json(explanation)
    else:
        show_explained(explanation)
    if not explanation.meanings and not explanation.causes:
        raise typer.Exit(3)


def _end(diagnoses: Sequence[Diagnosis], *, strict: bool) -> None:
    """Exit with the code of the worst verdict.

    The order is: a problem, a target that could not be checked, an unrecognised log, advice with
    --strict.
    """
    verdicts = {diagnosis.verdict for diagnosis in diagnoses}
    if PROBLEM in verdicts:
        raise typer.Exit(1)
    if UNCHECKED in verdicts:
        raise typer.Exit(3)
    if UNRECOGNISED in verdicts:
        raise typer.Exit(5)
    if verdicts - {HEALTHY} == {ADVICE} and strict:
        raise typer.Exit(2)
