"""The examination of devices in parallel: one probe each, one session, ranked causes."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from msgspec import structs

from fleet.device.texts import shell_text, text_of
from fleet.doctor.checks import every
from fleet.doctor.parts import own_words, raw_parts
from fleet.doctor.recent import RunFailure, builder_of, preflight, refusal
from fleet.doctor.remedy import NO_REPAIR, SAFE_PATH, names_of, places_of, with_remedy
from fleet.doctor.seen import Seen, seen, subjects
from fleet.doctor.session import (
    SessionTrial,
    has_validator,
    not_opened,
    open_session,
    run_validator,
)
from fleet.engine.deploy.release_builder import ReleaseBuilder
from fleet.engine.pool import DeviceResult, PoolOptions, on_every_device
from fleet.engine.session import Session
from fleet.facts.gather import source
from fleet.model.cause import LAYERS
from fleet.model.command import Command
from fleet.model.diagnosis import (
    ADVICE,
    BAD,
    HEALTHY,
    OK,
    PROBLEM,
    UNCHECKED,
    UNKNOWN,
    Check,
    Diagnosis,
    Evidence,
    Ranked,
    Remedy,
)
from fleet.model.errors import (
    AuthError,
    DeadlineError,
    FleetError,
    HostKeyError,
    InputError,
    TransportError,
    UnreachableError,
)
from fleet.model.events import Listener
from fleet.model.facts import Facts
from fleet.model.inventory import Host
from fleet.model.plain import to_plain
from fleet.model.playbook import Playbook
from fleet.model.slots import SLOTS
from fleet.model.text import harmless
from fleet.model.version import VERSION
from fleet.runtimes.store import RuntimeStore
from fleet.triage.knowledge import knowledge
from fleet.triage.ranking import Witness, rank
from fleet.triage.text import lines_of
from fleet.triage.witnesses import witnesses

# Reasons why a device was not reached, in the words that causes use.

_ADB = {
    "unauthorized": "adb-unauthorized",
    "no permissions": "adb-no-permissions",
    "offline": "adb-offline",
    "missing": "adb-missing",
}


def link_check(host: Host, error: FleetError | None) -> Check:
    """Return a failed check of the layer `link`, or an unknown one for an error of another kind."""
    text = error.message if error else "no answer"
    output = f"{text}; try: {error.hint}" if error and error.hint else text
    if not isinstance(error, TransportError):
        return Check("link", "link", UNKNOWN, text, {}, "", output)
    return Check("link", "link", BAD, text, {"link": _word(error)}, _command(host), output)


def _word(error: TransportError) -> str:
    if error.adb_state in _ADB:
        return _ADB[error.adb_state]
    kinds: tuple[tuple[type[TransportError], str], ...] = (
        (HostKeyError, "host-key"),
        (AuthError, "auth"),
        (DeadlineError, "timeout"),
        (UnreachableError, "unreachable"),
    )
    return next((word for kind, word in kinds if isinstance(error, kind)), "unreachable")


def _command(host: Host) -> str:
    return "adb devices -l" if host.phone else f"fleet trust {host.name}"


LOOK_SECONDS = 60.0
# The whole probe goes to standard input: dropbear accepts no command of 9000 bytes or more.
_FEED = 'script=$(cat); eval "$script"'
_DENIED = 0.15  # factor of the weight of a line that every probe of the device contradicts
_OLD = 0.4  # factor of the weight of a journal line, which may be from before the repair


@dataclass(frozen=True)
class Round:
    """The options of an examination.

    `only` are ids of checks or layers. `folders` on the device are examined too. `verify` hashes
    every blob. Without `session` no NPU session is opened. `log` is a pasted log, whose causes are
    separated by facts of the device. With `parts` the raw texts are read.

    `playbook` is the source of files for a damaged release, and its pre-flight checks are run. It
    is planned with `runtimes`, by default those of this user. `failures` are those of the last
    runs, by host.
    """

    only: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    verify: bool = False
    session: bool = True
    accept_new: bool = False
    parallel: int = 16
    log: str = ""
    parts: bool = False
    playbook: Playbook | None = None
    runtimes: RuntimeStore | None = None
    failures: Mapping[str, RunFailure] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if any("\n" in folder for folder in self.folders):
            raise InputError(
                "a folder's name contains a line break", hint="rename the folder on the device"
            )


@dataclass
class _Found:
    """The findings on one device. `whole` is False if the session was not to be opened."""

    sample: Seen
    whole: bool = True
    checks: list[Check] = field(default_factory=list)
    witnesses: list[Witness] = field(default_factory=list)
    parts: dict[str, str] = field(default_factory=dict)


def examine(hosts: Sequence[Host], listener: Listener, how: Round) -> list[Diagnosis]:
    """Return a diagnosis for each host, in their order.

    A device that was not reached has one too.
    """
    diagnoses: dict[str, Diagnosis] = {}
    asked = how.playbook if how.session and not how.only else None
    builder = builder_of(asked, how.runtimes or RuntimeStore(), listener)

    def work(session: Session, result: DeviceResult[None]) -> None:
        diagnoses[session.host.name] = diagnose(session, how, builder)
        result.outcome = "ok"

    options = PoolOptions[None](parallel=how.parallel, accept_new=how.accept_new)
    results = on_every_device(hosts, work, listener, options)
    return [_diagnosis(result, diagnoses.get(result.host.name)) for result in results]


def look(session: Session, how: Round) -> Seen:
    """Read everything that can be read without changing anything, in one round trip."""
    script = _probe(session.host.phone)
    folders = "\n".join(how.folders)
    command = Command(
        ("sh", "-c", _FEED, "fleet", session.host.base_dir, folders, "hash" * how.verify)
    )
    seconds = LOOK_SECONDS * (10 if how.verify else 1)
    result = session.run(command, "doctor", stdin=[script.encode()], seconds=seconds)
    return seen(result.text, session.host, result.error_text)


@cache
def _probe(android: bool) -> str:
    """Return probe.sh (for a phone with `android`) with replace.sh and doctor.sh before its end."""
    own = shell_text("replace") + text_of("doctor.sh")
    head = 'folders=$2 verify=$3; set -- "$1"\n'
    return head + source(android=android).removesuffix("put end\n") + own + "put end\n"


def _examine_device(session: Session, how: Round) -> _Found:
    known = knowledge()
    now = look(session, how)
    wanted = not how.only or "session" in how.only
    findings = _Found(now, wanted, parts=raw_parts(session, now) if how.parts else {})
    ours = [_host(session), _link(session, now.facts)]
    findings.checks = [check for check in ours if not how.only or check.layer in how.only]
    findings.checks += [_harmless(check) for check in every(now, how.only)]
    bad = [check for check in findings.checks if check.status == BAD]
    journal = lines_of("\n".join(now.block("journal")))
    if how.session and wanted:
        opened = _session(session, now, bad)
        findings.checks += [_harmless(trial.check) for trial in opened]
        for trial in opened:
            if trial.log and trial.check.status != OK:
                findings.witnesses += witnesses(lines_of(trial.log), known, "session log")
    findings.witnesses += _of_log(how.log, findings.checks)
    failure = how.failures.get(session.host.name)
    if failure is not None and wanted:
        findings.checks.append(_harmless(failure.check()))
        last = witnesses(lines_of(f"{failure.log}\n{failure.text}"), known, "last run")
        findings.witnesses += [_weaker(witness) for witness in last]
    failed = [check for check in findings.checks if check.status == BAD]
    findings.witnesses = [*_of_checks(findings.checks, failing=bool(failed)), *findings.witnesses]
    if failed:
        old = witnesses(journal, known, "journal")
        findings.witnesses += [_weaker(witness) for witness in old]
    return findings


def _of_log(log: str, checks: Sequence[Check]) -> list[Witness]:
    """Return the evidence in a pasted log, with little weight if the device contradicts it."""
    facts = {key: word for check in checks for key, word in check.facts.items()}
    return [
        replace(witness, weight=witness.weight * _DENIED)
        if witness.cause.is_denied(facts)
        else witness
        for witness in (witnesses(lines_of(log), knowledge()) if log else ())
    ]


def _weaker(witness: Witness) -> Witness:
    return Witness(
        witness.cause, witness.weight * _OLD, witness.evidence, witness.order + 1, witness.summary
    )


def _session(session: Session, now: Seen, bad: list[Check]) -> list[SessionTrial]:
    """Open a session with each set-up. Nothing is opened if an earlier layer is broken."""
    if bad:
        return [not_opened(f"not checked: fix the problem of {bad[0].id} first")]
    every_subject = subjects(now)
    if not every_subject:
        text = (
            "not checked: nothing is deployed; to check files that you copied by hand: "
            "--folder FOLDER"
        )
        return [not_opened(text)]
    opened = []
    for subject in every_subject:
        opened.append(open_session(session, now, subject))
        if has_validator(subject):
            opened.append(run_validator(session, now, subject))
    return opened


def _harmless(check: Check) -> Check:
    """Return the check with texts that are safe to show: a device cannot control the terminal."""
    return structs.replace(
        check,
        text=harmless(check.text),
        command=harmless(check.command),
        output=harmless(check.output),
    )


def _host(session: Session) -> Check:
    """Return a check with the tools of this workstation; they work if a device was reached."""
    way = f"adb server {session.host.adb_server or 'on this workstation'}"
    tools = f"fleet {VERSION}, Python {platform.python_version()}"
    text = f"{tools}, {way}" if session.host.phone else tools
    return Check("host", "host", OK, text)


def _link(session: Session, facts: Facts) -> Check:
    text = f"{session.host.transport} to {session.host.name}: {session.identity}"
    own = "yes" if session.host.transport == "local" else "libraries" if facts.local else "no"
    return Check("link", "link", OK, text, {"link": "ok", "device.local": own})


def _of_checks(checks: Iterable[Check], *, failing: bool) -> list[Witness]:
    """Return the evidence of checks that warn or fail, for each cause, with its layer's order.

    With `failing`, a check that only warns has half the weight.
    """
    known = knowledge()
    evidences = []
    broken = [check.layer for check in checks if check.status == BAD]
    for check in checks:
        if check.status in {OK, UNKNOWN}:
            continue
        order = sum(LAYERS.index(layer) < LAYERS.index(check.layer) for layer in set(broken))
        evidence = Evidence(check.command or check.id, check.output or check.text)
        for cause in known.causes.values():
            for predicate in cause.probe:
                if check.facts.get(predicate.fact) in predicate.values:
                    quiet = check.status != BAD and failing
                    weight = predicate.weight * (0.5 if quiet else 1.0)
                    evidences.append(Witness(cause, weight, evidence, order, fact=True))
    return evidences


def _diagnosis(result: DeviceResult[None], known: Diagnosis | None) -> Diagnosis:
    diagnosis = known or _unreached(result)
    diagnosis.seconds, diagnosis.round_trips = result.seconds, result.round_trips
    return diagnosis


def _unreached(result: DeviceResult[None]) -> Diagnosis:
    error = result.error
    check = link_check(result.host, error)
    platform = "android" if result.host.phone else ""
    ranked = rank(_of_checks([check], failing=True), platform, known=knowledge().causes)
    slots = names_of(result.host)
    ranked = tuple(structs.replace(cause, slots={**cause.slots, **slots}) for cause in ranked)
    report = to_plain(error) if error else None
    return Diagnosis(result.host.name, UNCHECKED, ranked, (check,), error=report)


def diagnose(session: Session, how: Round, builder: ReleaseBuilder | None = None) -> Diagnosis:
    """Return the diagnosis of one device over an open session, with a plan against its problem.

    `builder` plans the release whose pre-flight checks run if nothing else is wrong.
    """
    diagnosis, sample = judge(session, how)
    broken = any(check.status == BAD for check in diagnosis.checks)
    if not broken and builder is not None and (finding := preflight(session, builder)):
        check, ranked = refusal(finding, builder.playbook, session.host.name)
        diagnosis.checks = (*diagnosis.checks, _harmless(check))
        diagnosis.causes = (ranked, *diagnosis.causes)
        diagnosis.verdict, diagnosis.remedy = PROBLEM, Remedy(refusal=NO_REPAIR)
        return diagnosis
    if broken:
        diagnosis = with_remedy(session, sample, diagnosis, how.playbook)
    return diagnosis


def judge(session: Session, how: Round) -> tuple[Diagnosis, Seen]:
    """Return the diagnosis without a plan, and the sample of the device."""
    findings = _examine_device(session, how)
    return _of_found(session.host.name, findings), findings.sample


def _of_found(target: str, findings: _Found) -> Diagnosis:
    facts = findings.sample.facts
    known = {key: word for check in findings.checks for key, word in check.facts.items()}
    possible = [
        witness
        for witness in findings.witnesses
        if witness.fact or not witness.cause.is_refuted(known)
    ]
    # General causes count only if no line has a specific cause.
    if any(not witness.cause.general for witness in possible):
        possible = [witness for witness in possible if not witness.cause.general]
    seen_here = {**_slots(facts), **_of_facts(known), **places_of(findings.sample)}
    deploy = {"path": facts.base_dir} if SAFE_PATH.fullmatch(facts.base_dir) else {}
    ranked = tuple(
        structs.replace(cause, facts=known, slots={**deploy, **cause.slots, **seen_here})
        for cause in rank(possible, _platform(facts), known=knowledge().causes)
    )
    return Diagnosis(
        target=target,
        verdict=_verdict(findings, ranked),
        causes=ranked,
        checks=tuple(findings.checks),
        emulated=facts.emulated,
        notes=_notes(findings, ranked),
        parts=findings.parts,
        secrets=own_words(facts),
    )


def _platform(facts: Facts) -> str:
    """Return the platform whose fixes fit. A lab phone without bionic has no apt either."""
    return "android" if facts.android is not None else facts.os_family


def _of_facts(known: Mapping[str, str]) -> dict[str, str]:
    """Return the names that checks give for the commands of fixes, if they are safe in a shell."""
    given = {key.removeprefix("slot."): word for key, word in known.items() if key[:5] == "slot."}
    return {name: word for name, word in given.items() if re.fullmatch(SLOTS[name], word)}


def _slots(facts: Facts) -> dict[str, str]:
    """Return the known values of the device for commands of fixes."""
    arch = facts.soc.hexagon_arch if facts.soc else None
    return {"arch": arch} if arch else {}


def _verdict(findings: _Found, ranked: tuple[Ranked, ...]) -> str:
    """Return the verdict.

    Only an opened session shows that all is well, unless checks were selected.
    """
    if any(check.status == BAD for check in findings.checks):
        return PROBLEM
    opened = any(check.id == "session" and check.status == OK for check in findings.checks)
    if any(cause.cause.severity == "error" and _logged(cause) for cause in ranked[:1]):
        return PROBLEM
    if findings.whole and not opened:
        return UNCHECKED
    failed_before = any(check.facts.get("last.run") == "failed" for check in findings.checks)
    return ADVICE if ranked or failed_before else HEALTHY


def _logged(cause: Ranked) -> bool:
    """Return True if a pasted log shows the cause and facts of the device do not contradict it."""
    in_log = any(evidence.source == "log" for evidence in cause.evidence)
    return in_log and not cause.cause.is_denied(cause.facts)


def _notes(findings: _Found, ranked: tuple[Ranked, ...]) -> tuple[str, ...]:
    notes = []
    if findings.sample.facts.emulated:
        notes.append(
            "emulated: the device has no Hexagon NPU, so the session ran on the HTP emulator"
        )
    if not ranked and any(check.status == BAD for check in findings.checks):
        notes.append(
            "fleet knows no cause that fits; to collect the facts for a maintainer: fleet "
            "doctor --bundle FILE"
        )
    return tuple(notes)
