"""`fleet doctor`: the cause of a problem, on live devices or from a pasted log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fleet.cli import options as opt
from fleet.cli import output, project
from fleet.cli.doctor_view import question_lines, report, show_explained
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
        key, equals, word = text.rpartition("=") if "=@" not in text else text.partition("=")
        if not equals or not key:
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


LogOption = Annotated[
    list[str] | None,
    typer.Option(help="Explain this log file instead of a device; - is standard input."),
]
ExplainOption = Annotated[
    str | None, typer.Option("--explain", help="Explain an error code: 14001, 0x80000406, -8.")
]
ListOption = Annotated[bool, typer.Option("--list", help="List all checks and known causes.")]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Run only this check, or all checks of this layer (names: --list). Repeatable."
    ),
]
FolderOption = Annotated[
    list[str] | None,
    typer.Option(help="Check this folder on the device, with a QAIRT that you copied by hand."),
]
PlatformOption = Annotated[
    str, typer.Option(help="With --log: system of the device: linux, android or windows.")
]
SessionOption = Annotated[
    bool,
    typer.Option(
        "--session/--no-session",
        help="Test whether an NPU session opens (default), or skip this test.",
    ),
]
HashOption = Annotated[
    bool, typer.Option("--verify", help="Compare the SHA-256 of all deployed files (slow).")
]
FixOption = Annotated[
    bool, typer.Option("--fix", help="Repair the device: show the steps, ask, then apply them.")
]
DryOption = Annotated[bool, typer.Option("--dry-run", help="With --fix: only show the steps.")]
PlaybookOption = Annotated[
    Path | None, typer.Option(help="With --fix: the playbook to deploy again.")
]
YesOption = Annotated[
    bool,
    typer.Option(
        "--yes", "-y", help="Do not ask before --fix applies its steps or --bundle writes its file."
    ),
]
BundleOption = Annotated[
    Path | None,
    typer.Option(help="Also write all findings, in known words only, to this .tar.gz file."),
]
AnswerOption = Annotated[
    list[str] | None,
    typer.Option(
        help="With --log: answer a question that the doctor printed, by its ID: ID=CAUSE, or "
        "ID=@FILE with the output that it asks for."
    ),
]
AssistantOption = Annotated[
    bool,
    typer.Option(
        "--for-assistant",
        help="Print facts, causes and evidence as one redacted text, to paste into any assistant. "
        "fleet sends nothing.",
    ),
]
StrictOption = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Exit with status 2 instead of 0 if the doctor found no problem but gives advice.",
    ),
]


def doctor(
    inventory: Annotated[Path | None, _INVENTORY] = None,
    host: opt.Hosts = None,
    limit: opt.Limit = None,
    log: LogOption = None,
    explain_code: ExplainOption = None,
    listed: ListOption = False,
    only: OnlyOption = None,
    folder: FolderOption = None,
    platform: PlatformOption = "",
    answer: AnswerOption = None,
    session: SessionOption = True,
    verify: HashOption = False,
    fix: FixOption = False,
    dry_run: DryOption = False,
    playbook: PlaybookOption = None,
    yes: YesOption = False,
    bundle: BundleOption = None,
    assistant: AssistantOption = False,
    strict: StrictOption = False,
    parallel: opt.Parallel = None,
    accept_new: opt.AcceptNew = False,
    verbose: opt.Verbose = False,
    as_json: opt.Json = False,
) -> None:
    """Find out what is wrong: devices (-i), a pasted log (--log), an error code (--explain).

    -v shows every check. With -i and --log, checks on the device help to find the cause.
    Exit code 0 healthy, 1 problem, 2 advice with --strict, 3 not checked, 5 log not recognised.

    Example: fleet doctor -i evks.yaml --limit evk-07
    Example: genie-t2t-run ... 2>&1 | fleet doctor --log -
    Example: fleet doctor --explain 14001
    """
    inventory = _one_of(inventory, log, explain_code, listed, answer)
    if explain_code is not None:
        return _explain(explain_code, as_json=as_json)
    if log and inventory is None:
        return _end(_logs(log, platform, answer, as_json, bundle, yes, assistant), strict=strict)
    from fleet.cli import common, doctor_devices  # noqa: PLC0415 - most of a deploy
    from fleet.doctor.examine import Round  # noqa: PLC0415

    if listed:
        return doctor_devices.show_known(as_json=as_json)
    names, beside = doctor_devices.known(only or []), "\n".join(map(_text, log or ()))
    many, limit = parallel or common.DEFAULT_PARALLEL, [*(host or ()), *(limit or ())]
    how = Round(names, tuple(folder or ()), verify, session, accept_new, many, beside, bool(bundle))
    asked = doctor_devices.FixRequest(playbook, dry_run, yes, as_json) if fix else None
    shown = (bundle, as_json, verbose, yes, assistant)
    return _end(doctor_devices.look(inventory or Path(), limit, how, asked, *shown), strict=strict)


def _no_answers(answer: list[str] | None) -> None:
    """Raise InputError for answers without a log."""
    if answer:
        raise InputError(
            "--answer works only with --log, and without -i",
            hint="give the log with --log FILE, and leave out -i",
        )


def _one_of(
    inventory: Path | None,
    log: list[str] | None,
    code: str | None,
    listed: bool,
    answer: list[str] | None,
) -> Path | None:
    """Return the inventory or, with nothing to examine, the project's. Raises InputError."""
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
        _no_answers(answer)
    return inventory


def _why_not_supplied() -> str:
    """Return why no project names the inventory."""
    current_project = project.current()
    if current_project is None:
        return "this folder is not in a fleet project"
    return f"{current_project.file} names no inventory"


def _logs(
    names: Sequence[str],
    platform: str,
    answer: list[str] | None,
    as_json: bool,
    bundle: Path | None,
    yes: bool,
    assistant: bool,
) -> list[Diagnosis]:
    if platform and platform not in _PLATFORMS:
        raise InputError(
            f"'{platform}' is not a platform", hint=f"use one of {', '.join(_PLATFORMS)}"
        )
    diagnoses, answers = [], given(answer)
    for name in names:
        look = partial(_triage, _text(name), name, platform)
        diagnoses.append(asked(look, answers, quiet=as_json or assistant or name == "-"))
    report(diagnoses, as_json=as_json, bundle=bundle, log=True, yes=yes, assistant=assistant)
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
