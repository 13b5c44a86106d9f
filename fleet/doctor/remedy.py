"""The remedies of fleet for a problem of a device: one plan that is shown, applied and undone."""

from __future__ import annotations

import re
import shlex

from msgspec.structs import replace

from fleet.doctor.seen import Release, Seen, Subject, subjects
from fleet.engine.deploy.plan import plan_system
from fleet.engine.session import Session
from fleet.model.cause import Fix
from fleet.model.diagnosis import Diagnosis, Remedy
from fleet.model.errors import FleetError
from fleet.model.facts import Facts
from fleet.model.inventory import Host
from fleet.model.playbook import Playbook
from fleet.model.system import SystemSpec

FASTRPC = SystemSpec(fastrpc="auto")
PROVISION, REDEPLOY, ROLLBACK = "provision", "redeploy", "rollback"
SAFE_PATH = re.compile(r"/[\w./@%+=~-]{1,200}")  # safe in a shell, quoted or not
UNKNOWN_CAUSE = "fleet does not know the cause of the problem"
NO_REPAIR = "fleet has no repair for this cause; use the fixes above"
_NOTHING_LEFT = "FastRPC is already set up; use the fixes above"


def with_remedy(
    session: Session, sample: Seen, diagnosis: Diagnosis, playbook: Playbook | None
) -> Diagnosis:
    """Return the diagnosis with the plan against its problem; nothing is changed.

    A plan replaces the written fixes of the first cause. A damaged release is repaired first,
    whatever its cause. `playbook` sends its files again; otherwise the previous release becomes
    current if it shares no damaged file.
    """
    remedy = _plan(session, sample, diagnosis, playbook)
    if diagnosis.causes:
        first, *rest = diagnosis.causes
        name = shlex.quote(session.host.name)
        first = replace(first, check=f"fleet doctor -l {name}")
        if remedy.operation:
            first = replace(first, plan=(_fix(remedy, name),))
        elif any(fix.apply for fix in first.fixes):
            left = tuple(fix for fix in first.fixes if not fix.apply)
            first = replace(first, plan=left or (Fix("any", remedy.refusal, ""),))
        diagnosis.causes = (first, *rest)
    diagnosis.remedy = remedy
    return diagnosis


def names_of(host: Host) -> dict[str, str]:
    """Return the values of HOST, SSH and KEY_NAME for commands that people paste."""
    names = {"HOST": shlex.quote(host.name)}
    if host.transport == "ssh" and host.address:
        who = f"{host.user}@{host.address}" if host.user else host.address
        port = f"-p {host.port} " if host.port not in {None, 22} else ""
        key = f"[{host.address}]:{host.port}" if port else host.address
        names |= {"SSH": port + shlex.quote(who), "KEY_NAME": shlex.quote(key)}
    return names


def places_of(sample: Seen) -> dict[str, str]:
    """Return the names of a device, its release and its folders, for commands that people paste."""
    names = names_of(sample.host)
    for subject in subjects(sample):
        if SAFE_PATH.fullmatch(subject.root):
            release = subject.release
            inside = release.files if release else ()
            files = (*subject.files, *(f"{subject.root}/{name}" for name in inside))
            models = [path for path in files if path.endswith(".bin") and SAFE_PATH.fullmatch(path)]
            folder = min(models).rpartition("/")[0] if models else subject.root
            names |= {"NAME": shlex.quote(release.name)} if release else {}
            return names | {"RELEASE": subject.root, "BUNDLE": folder}
    return names


def _plan(
    session: Session, sample: Seen, diagnosis: Diagnosis, playbook: Playbook | None
) -> Remedy:
    cause = diagnosis.causes[0].cause if diagnosis.causes else None
    name = cause.id if cause else ""
    for subject in subjects(sample):
        if subject.release is not None and _is_damaged(subject):
            return _of_release(subject, subject.release, name, playbook)
    if cause is None:
        return Remedy(refusal=UNKNOWN_CAUSE)
    if PROVISION in {fix.apply for fix in cause.fix}:
        return _provision(session, name, sample.facts)
    return Remedy(name, refusal=NO_REPAIR)


def _is_damaged(subject: Subject) -> bool:
    return subject.unsealed or bool(subject.missing or subject.damaged or subject.strange)


def _of_release(
    subject: Subject, release: Release, cause: str, playbook: Playbook | None
) -> Remedy:
    names = (*subject.missing, *subject.damaged, *subject.strange)
    if playbook is not None and playbook.name == release.name:
        what = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        steps = (
            f"check the hash of every file of release {release.name} on the device",
            f"send what is damaged or missing again: {what or 'the rest of the release'}",
        )
        return Remedy(cause, REDEPLOY, release.name, steps)
    lost = (*subject.damaged, *(name for name in subject.missing if name in release.links))
    blobs = {release.files[name][0] for name in lost}
    if release.before_blobs and not blobs & release.before_blobs:
        steps = (
            f"test {release.name}/{release.before}, the release before, on the NPU",
            "make it current",
        )
        return Remedy(cause, ROLLBACK, release.name, steps)
    return Remedy(
        cause,
        refusal=f"fleet needs the playbook of {release.name} to send its files again: fleet "
        "doctor --fix --playbook FILE",
    )


def _provision(session: Session, cause: str, facts: Facts) -> Remedy:
    try:
        plan = plan_system(session, FASTRPC, facts).plan
    except FleetError as error:
        return Remedy(cause, refusal=error.message)
    refused = [finding for finding in plan.findings if finding.refuses]
    if refused:
        return Remedy(cause, refusal=f"{refused[0].message}; {refused[0].cure}")
    if not plan.system_steps:
        return Remedy(cause, refusal=_NOTHING_LEFT)
    steps = tuple(step.describe() for step in plan.system_steps)
    commands = tuple(step.as_shell() for step in plan.system_steps if step.needs_root)
    return Remedy(cause, PROVISION, "", steps, commands)


def _fix(remedy: Remedy, name: str) -> Fix:
    """Return the plan as a fix, with the command that applies it to the device `name`."""
    undo, changes = "", "which release is current"
    if remedy.operation == PROVISION:
        undo, changes = f"fleet undo last -l {name}", "only what these steps say"
    elif remedy.operation == REDEPLOY:
        changes = "only the damaged files, which get the content that was deployed"
    else:
        undo = f"fleet deploy -l {name}"
    return Fix(
        platform="any",
        title="Let fleet do it; it shows these steps, asks, and takes back what does not help",
        command=f"fleet doctor --fix -l {name}",
        where="host",
        needs_root=bool(remedy.commands),
        apply=remedy.operation,
        changes=changes,
        undo=undo,
        steps=remedy.steps,
    )
