"""The plan for a device and a playbook: facts, state and pre-flight checks.

It takes two round trips, a third if the playbook changes the system, and a fourth if that needs
root. One more is needed if a user's program uses libraries of the device, or a program of the SDK
is still to be sent.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from fleet.bundles.closure import absent, executorch_pair, lacking, needs, newer_glibc
from fleet.bundles.preflight import preflight
from fleet.device.shell import device_script, framed
from fleet.engine.budget import too_long
from fleet.engine.session import Session
from fleet.engine.states import Survey, facts_of
from fleet.engine.system.become import Become
from fleet.engine.system.provision import cured, system_snapshot
from fleet.engine.transfer.carriers import way
from fleet.model.command import Command
from fleet.model.errors import DeviceError, PreflightError
from fleet.model.facts import Facts
from fleet.model.finding import Finding
from fleet.model.manifest import Manifest
from fleet.model.plan import DevicePlan, SendBlobs
from fleet.model.system import SystemSpec
from fleet.ops.backend import backend_for
from fleet.ops.release import ReleaseState
from fleet.runtimes.targets import target_facts

if TYPE_CHECKING:  # a push needs no runtimes
    from fleet.engine.deploy.release_builder import Builder
    from fleet.engine.deploy.resolver import Parts


_TRIAL_BYTES = 1 << 20


@dataclass(frozen=True)
class Planned:
    """A plan, the way to become root for it, and the generation of the write lease before it."""

    plan: DevicePlan
    become: Become
    generation: int | None = None


def plan_device(session: Session, builder: Builder, *, verify: bool = False) -> Planned:
    """Return the plan of a deploy to this device. Nothing is changed.

    With `verify`, the device hashes every blob instead of trusting its size.
    """
    facts = facts_of(session)
    target = builder.target_for(session.host, facts)
    parts = builder.parts(target, facts.soc.hexagon_arch, builder.python_of(facts))
    manifest = builder.manifest(parts)
    survey = Survey(session, facts, manifest, builder.playbook.keep)
    look = session.reading(lambda: survey.look(verify=verify))
    state, actions = look.state, look.actions
    system = session.reading(lambda: system_snapshot(session, builder.playbook.system, facts))
    sends = [action for action in actions if isinstance(action, SendBlobs)]
    findings = preflight(
        builder.bundle,
        parts.runtime,
        parts.selection,
        parts.target,
        facts,
        bytes_to_send=sum(send.room for send in sends),
        files_to_send=sum(len(send.blobs) for send in sends),
    )
    findings = (
        *_opened(session, builder, parts, manifest, facts, sends=bool(sends)),
        *_pair(builder, parts),
        *cured(findings, system.plan),
        *system.plan.findings,
    )
    plan = DevicePlan(
        host=session.host,
        facts=facts,
        target=parts.target,
        manifest=manifest,
        findings=tuple(sorted(findings, key=lambda finding: not finding.refuses)),
        actions=(*system.plan.steps, *actions),
        system=len(system.plan.steps),
        become=system.become.describe() if system.plan.needs_root else "",
        current=state.current,
        notes=(
            *look.holders.notes,
            *system.plan.notes,
            *_notes(facts, builder, parts, state),
            *way(session, sum(action.bytes for action in actions)),
        ),
        then=_then(builder),
    )
    late = too_long(session.host, builder.playbook, plan, partial(_rate, session))
    plan = replace(plan, findings=(*late, *plan.findings)) if late else plan
    return Planned(plan, system.become, look.holders.generation)


def _rate(session: Session) -> float:
    """Return the rate of the link in bytes a second, measured with one MiB and its round trip."""
    began = time.monotonic()
    session.ask(Command(("wc", "-c")), "rate", stdin=[b"\0" * _TRIAL_BYTES])
    return _TRIAL_BYTES / max(time.monotonic() - began, 1e-6)


def plan_system(session: Session, spec: SystemSpec, facts: Facts | None = None) -> Planned:
    """Return the plan of the system part alone, in at most three round trips, two with `facts`.

    `facts` are those that the same session gathered earlier.
    """
    facts = facts or facts_of(session)
    system = system_snapshot(session, spec, facts)
    steps = system.plan.steps
    plan = DevicePlan(
        host=session.host,
        facts=facts,
        target="",
        manifest=Manifest("system", ()),
        findings=system.plan.findings,
        actions=steps,
        system=len(steps),
        become=system.become.describe() if system.plan.needs_root else "",
        notes=system.plan.notes,
    )
    return Planned(plan, system.become)


def refuse(plan: DevicePlan) -> None:
    """Raise PreflightError for the first refusal of a plan."""
    refusals = [finding for finding in plan.findings if finding.refuses]
    if refusals:
        first = refusals[0]
        more = f" ({len(refusals) - 1} more checks failed: fleet plan)" if len(refusals) > 1 else ""
        raise PreflightError(
            f"the pre-flight check {first.rule} failed: {first.summary}{more}",
            step="pre-flight",
            hint=first.cure_on(plan.host.name),
        )


def require_current(plan: DevicePlan) -> None:
    """Raise PreflightError or DeviceError for a device that does not match the playbook."""
    refuse(plan)
    if not plan.unchanged:
        raise DeviceError(
            f"the playbook describes release {plan.manifest.id} of {plan.manifest.name}, but "
            f"the device has {plan.current or 'no release'}",
            hint="deploy this playbook first: fleet deploy",
        )


def _opened(
    session: Session,
    builder: Builder,
    parts: Parts,
    manifest: Manifest,
    facts: Facts,
    *,
    sends: bool,
) -> tuple[Finding, ...]:
    """Return refusals for files that a run opens and that neither the release nor the device has.

    `sends` is False if nothing has to be sent; then the runtime's own tool is not checked. Takes
    one round trip if the device has to be asked.
    """
    opened = builder.opened(parts, manifest)
    findings, programs, run = opened.findings, opened.programs, builder.playbook.run
    if run is None or not facts.posix:
        return findings
    unsent = None if sends else parts.selection.tool
    own = {path: linked for path, linked in opened.linked.items() if path != unsent}
    wanted = {**opened.libraries, **needs(own, manifest.files)}
    findings = (*findings, *newer_glibc(own, manifest.files, facts))
    if not wanted and not programs:
        return findings
    command = device_script("libraries", *wanted, "--", *programs)
    answer = session.run(command, "libraries of the device").text
    lines = framed(answer, "fleet-libraries 1", session.host.name)
    there = frozenset(words[1] for words in lines if len(words) == 2 and words[0] == "there")
    return (*findings, *lacking(wanted, there, facts), *absent(programs, there, run.runner))


def _pair(builder: Builder, parts: Parts) -> tuple[Finding, ...]:
    run = builder.playbook.run
    if run is None or builder.bundle.kind != "executorch":
        return ()
    emulator = target_facts(parts.target).kind == "emulator"
    return executorch_pair(run.libraries, parts.runtime.version, emulator=emulator)


def _then(builder: Builder) -> tuple[str, ...]:
    run = builder.playbook.run
    if run is None:
        return ()
    lines, size = len(run.prompt.splitlines()), len(run.prompt.encode())
    turns = f"{run.warmups} warm-up and {run.repeats} counted" if run.warmups else f"{run.repeats}"
    how = f"each at most {run.max_tokens} tokens and {run.timeout:g} s"
    prompt = f"prompt of {size} bytes, {lines} line{'s' * (lines != 1)}"
    return (
        f"run {run.runner} in the release: {turns}; {prompt}; {how}",
        "collect the profile of each run: init, TTFT, prompt and generation rate, temperatures",
    )


def _notes(facts: Facts, builder: Builder, parts: Parts, state: ReleaseState) -> tuple[str, ...]:
    bundle = builder.bundle
    compiled = (
        f"compiled with QAIRT {bundle.qairt} ({bundle.qairt_source})"
        if bundle.qairt
        else "it does not say which QAIRT compiled it"
    )
    what = f"bundle {bundle.name}: {compiled}" if bundle.kind != "runtime" else "no bundle"
    notes = [f"{what}; runtime {parts.runtime.build_id}, {parts.target}"]
    notes += [
        f"fleet corrects {name} for {facts.os_family}, in the copy that it sends"
        for name in builder.corrected(parts)
    ]
    if facts.emulated:
        notes.append(
            "emulated: the device has no Hexagon NPU, so the numbers are those of the HTP emulator"
        )
    if not facts.tools.sha256 and not backend_for(facts).hashes:
        notes.append("the device has no sha256 tool, so fleet reads the files back to check them")
    if state.bad:
        notes.append(f"{len(state.bad)} files on the device are damaged, so fleet sends them again")
    if not facts.tools.sync_file:
        notes.append(
            "the device cannot sync a single file (`sync FILE`), so fleet syncs the whole disk"
        )
    source = parts.runtime.source_of(parts.target)
    if source.kind != "none":
        notes.append(f"runtime from {source.name}")
    return tuple(notes)
