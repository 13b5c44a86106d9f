"""The proof: a real NPU session on the device with its own runtime, in one round trip."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any

from fleet.device.texts import path_of
from fleet.doctor.checks.making import Maker
from fleet.doctor.seen import BACKEND, Seen, Subject, device_machine
from fleet.engine.deploy.switch import check_health
from fleet.engine.session import Session
from fleet.model.command import Command, script
from fleet.model.diagnosis import Check
from fleet.model.errors import DeadlineError, DeviceError
from fleet.profiles.runs import new_run_id

SECONDS = 30.0  # the test opens only a device or a small context, never an 8B bundle
GRACE = 10.0
_OWN_CONTEXT = 64 << 20  # larger ones load slowly and need much of the DSP's memory
_MARK = "fleet-session "
_BOOT = (
    "import sys;n=int(sys.argv.pop(1));"
    "exec(compile(sys.stdin.buffer.read(n),'fleet_session','exec'),{'__name__':'fleet_session'})"
)
_SESSION, _VALIDATOR = Maker("session", "session"), Maker("validator", "session")
_FAILED = {"session": "failed"}
TINY_QAIRT = (2, 47)  # the version that made the tiny contexts; every later one loads them


@dataclass(frozen=True)
class SessionTrial:
    """The outcome of a session: a check for the report, and the messages of the library."""

    check: Check
    log: str = ""


def open_session(session: Session, sample: Seen, subject: Subject) -> SessionTrial:
    """Open a session with the set-up `subject`. The result tells if it cannot be tried."""
    tools = sample.facts.tools
    libraries = {library.name for library in subject.libraries}
    if not subject.lib or BACKEND not in libraries:
        what = f"contains no {BACKEND}" if libraries else "contains only data and no runtime"
        return _unknown(f"{subject.label} {what}, so no NPU session can be opened")
    if subject.machine not in {"", device_machine(sample)}:
        return _unknown(
            f"the runtime is for {subject.machine} and cannot run on {device_machine(sample)}"
        )
    if tools.python3 is None or not tools.python3_ctypes:
        return _by_health(session, sample, subject)
    context = _context(subject)
    arch = "v73" if subject.emulator else sample.facts.soc.hexagon_arch
    sent = tiny_context(arch) if context == "-" else b""
    more = (context,) if context and (sent or context != "-") else ()
    argv, program = session_argv(tools.python3, f"{subject.lib}/{BACKEND}", *more)
    command = Command(argv, env=_environment(sample, subject), unset=("DSP_LIBRARY_PATH",))
    try:
        result = session.run(command, "session", stdin=[program, sent], seconds=SECONDS + GRACE)
    except DeadlineError:
        text = f"the test did not end within {SECONDS:g} s"
        return SessionTrial(_SESSION.bad(text, _FAILED, _shown(subject), "no answer"))
    answer = result.text + "\n" + result.error_text
    return SessionTrial(_judge(answer, result.status, subject), answer)


VALIDATOR = "bin/qnn-platform-validator"
VALIDATOR_SECONDS = 60.0
_ITS_TEST = re.compile(r"Unit Test on the backend \S+\s*:\s*(\w+)", re.IGNORECASE)
_ITS_FINDINGS = re.compile(
    r"^((?:Backend (?:Hardware|Libraries)|(?:Library|Core) Version|Unit Test) +: .*\S"
    r"|ERROR:.*\S)",
    re.MULTILINE,
)
# The tool also writes a table, so it runs in a folder of its own, like those of doctor.sh.
_IN_A_FOLDER = """f=$1/.fleet-try-$$
mkdir "$f" && cd "$f" || exit 74
"$2" --backend dsp --coreVersion --libVersion --testBackend --targetPath "$f"
status=$?
cd / && rm -rf "$f"
exit $status"""


def has_validator(subject: Subject) -> bool:
    """Return True if the set-up contains Qualcomm's own test of the platform."""
    release = subject.release
    names = release.files if release is not None else subject.files
    place = VALIDATOR if release is not None else f"{subject.root}/{VALIDATOR}"
    return place in names and not subject.emulator and bool(subject.lib)


def run_validator(session: Session, sample: Seen, subject: Subject) -> SessionTrial:
    """Run qnn-platform-validator of the set-up, and judge its messages and its exit status.

    Its own small program on the DSP is a test that nothing else does. A failure next to an NPU
    session that opens is therefore only a warning.
    """
    tool = f"{subject.root}/{VALIDATOR}"
    parent = PurePosixPath(sample.facts.base_dir).parent
    command = script(_IN_A_FOLDER, str(parent), tool, env=_environment(sample, subject))
    command = replace(command, unset=("DSP_LIBRARY_PATH",))
    shown = f"{tool} --backend dsp --coreVersion --libVersion --testBackend"
    try:
        result = session.run(command, "validator", seconds=VALIDATOR_SECONDS)
    except DeadlineError:
        text = f"qnn-platform-validator did not end within {VALIDATOR_SECONDS:g} s"
        return SessionTrial(_VALIDATOR.unknown(text, {"validator": "unknown"}, shown))
    answer = result.text + "\n" + result.error_text
    verdict = _ITS_TEST.search(answer)
    findings = [re.sub(r" +", " ", line) for line in _ITS_FINDINGS.findall(answer)]
    output = "\n".join(findings[:8]) or _tail(answer)
    if verdict is None:
        text = f"qnn-platform-validator gave no verdict (exit status {result.status})"
        check = _VALIDATOR.unknown(text, {"validator": "unknown"}, shown, output)
        return SessionTrial(check)
    if verdict[1].lower() == "passed" and result.status == 0:
        text = f"{subject.label}: qnn-platform-validator passed its test on the DSP"
        return SessionTrial(_VALIDATOR.ok(text, {"validator": "passed"}, shown, output))
    text = (
        f"{subject.label}: the test of qnn-platform-validator {verdict[1].lower()} "
        f"(exit status {result.status})"
    )
    return SessionTrial(_VALIDATOR.warn(text, {"validator": "failed"}, shown, output), answer)


def _context(subject: Subject) -> str:
    """Return a small context binary of the set-up, or "-" for fleet's own."""
    sizes = {context.path: context.size for context in subject.contexts}
    if subject.release is not None:
        every = subject.release.files.items()
        sizes = {f"{subject.root}/{n}": size for n, (_, size) in every if n.endswith(".bin")}
    small = sorted((size, path) for path, size in sizes.items() if 0 < size <= _OWN_CONTEXT)
    return small[0][1] if small else "-"


def tiny_context(arch: str | None) -> bytes:
    """Return fleet's small context binary for a Hexagon arch (`v73`); empty if there is none."""
    path = files("fleet.data") / "contexts" / f"tiny-{arch}-qairt2.47.0.bin"
    return path.read_bytes() if path.is_file() else b""


def session_argv(python: str, library: str, *more: str) -> tuple[tuple[str, ...], bytes]:
    """Return the arguments that open a session with a libQnnHtp, and the program for its input."""
    program = path_of("fleet_session.py").read_bytes()
    return (python, "-ISc", _BOOT, str(len(program)), library, f"{SECONDS:g}", *more), program


def _environment(sample: Seen, subject: Subject) -> dict[str, str]:
    release = subject.release
    if release is not None and release.manifest is not None:
        return release.manifest.environment(subject.root)
    return {
        "LD_LIBRARY_PATH": f"{subject.lib}:{sample.facts.base_dir}/shim",
        "ADSP_LIBRARY_PATH": subject.dsp or subject.lib,
    }


def _shown(subject: Subject) -> str:
    return f"fleet_session {subject.lib}/{BACKEND}"


def _judge(answer: str, status: int, subject: Subject) -> Check:
    report = told_by(answer)
    command = _shown(subject)
    if report is None:
        how = f"signal {status - 128}" if status > 128 else f"exit status {status}"
        text = f"{subject.label}: opening an NPU session crashed the test program ({how})"
        return _SESSION.bad(text, _FAILED, command, _tail(answer))
    failed = next(((n, code, text) for n, code, text in report.get("steps", ()) if code), None)
    if report.get("load") or report.get("late") or failed is not None:
        text = str(report.get("load") or "the test program did not end in time")
        if failed is not None:
            text = f"{failed[0]} failed with {failed[1]} {failed[2]}".strip()
        return _SESSION.bad(f"{subject.label}: {text}", _FAILED, command, _tail(answer))
    done = [name for name, _, _ in report.get("steps", ())]
    what = "device and context" if "contextCreateFromBinary" in done else "device"
    text = f"{subject.label}: {what} created with {report.get('build') or 'an unknown build'}"
    return _SESSION.ok(text, {"session": "ok"}, command)


def told_by(answer: str) -> dict[str, Any] | None:
    """Return the report of the test program about its steps; None if it crashed first."""
    for line in reversed(answer.splitlines()):
        if line.startswith(_MARK):
            try:
                report = json.loads(line.removeprefix(_MARK))
            except ValueError:
                return None
            return report if isinstance(report, dict) else None
    return None


def _tail(answer: str) -> str:
    """Return the first lines that explain the failure, which hold the cause."""
    lines = [line for line in answer.splitlines() if line.startswith(("<E>", "<W>"))]
    return "\n".join((lines or answer.splitlines()[-5:])[:8])


def _by_health(session: Session, sample: Seen, subject: Subject) -> SessionTrial:
    """Run the health probe of the release, for a device without python3."""
    manifest = subject.release.manifest if subject.release is not None else None
    if manifest is None or not manifest.origin.get("health"):
        return _unknown("the device has no python3 with ctypes, and no release with an NPU test")
    try:
        check_health(session, manifest, sample.facts.base_dir, f"{new_run_id()}-doctor")
    except DeviceError as error:
        text, test = f"{subject.label}: {error.message}", "the NPU test of the release"
        check = _SESSION.bad(text, _FAILED, test, error.message)
        return SessionTrial(check, error.message.replace(" | ", "\n"))
    text = f"{subject.label}: the NPU test of the release opened an NPU session"
    return SessionTrial(_SESSION.ok(text, {"session": "ok"}))


def _unknown(why: str) -> SessionTrial:
    return not_opened(f"not opened: {why}")


def not_opened(text: str) -> SessionTrial:
    """Return the outcome for a session that was not tried, with the reason."""
    return SessionTrial(_SESSION.unknown(text, {"session": "unknown"}))
