"""From a device and a playbook to a plan: facts, state, pre-flight.

Two round trips; a third where the playbook wants something of the system, and a fourth
where root is needed for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleet.bundles.preflight import preflight
from fleet.engine.become import Become
from fleet.engine.provisioning import cured, look
from fleet.engine.session import Session
from fleet.engine.transfer.carriers import way
from fleet.engine.transfer.deltas import with_known
from fleet.engine.transfer.relaying import tell_of
from fleet.facts.gather import gather
from fleet.facts.identity import check_identity
from fleet.model.deadline import Deadline
from fleet.model.errors import InputError
from fleet.model.facts import Facts
from fleet.model.manifest import Manifest
from fleet.model.plan import Action, DevicePlan, SendBlobs
from fleet.model.system import SystemSpec
from fleet.ops.lease import Holders, holders_in, who_command
from fleet.ops.release import (
    ReleaseState,
    actions_for,
    parse_state,
    state_command,
    state_input,
)

if TYPE_CHECKING:  # a push needs no runtimes
    from fleet.engine.workbench import Parts, Workbench

FACTS_SECONDS = 30.0
HASHING_BYTES_PER_SECOND = 20e6  # sha256sum on a small core without SHA instructions


@dataclass(frozen=True)
class Planned:
    """A plan, how this login becomes root for it, and the write lease that came before it."""

    plan: DevicePlan
    become: Become
    generation: int | None = None


@dataclass(frozen=True)
class Look:
    """What a device has of a release, what is to be done, and who holds it. One round trip."""

    state: ReleaseState
    actions: tuple[Action, ...]
    holders: Holders


def look_at(
    session: Session, facts: Facts, manifest: Manifest, keep: int, *, verify: bool = False
) -> Look:
    """Ask for the state of `manifest`; of a device that has no store of ours it is known.

    Who holds such a device is asked for a plan only: a deploy takes the lease next.
    """
    host = session.host.name
    if facts.store is False:
        state = ReleaseState(None, False, (), frozenset(), {}, frozenset(), frozenset())
        holders = Holders()
        if session.lease is None:
            holders = holders_in(session.ask(who_command(), "state").text, host)
        return Look(state, actions_for(manifest, state, keep), holders)
    text = _state_text(session, facts, manifest, verify=verify)
    state = parse_state(text, host, manifest)
    tell_of(session, facts, state.have)
    actions = _with_deltas(session, facts, actions_for(manifest, state, keep))
    return Look(state, actions, holders_in(text, host))


def take_and_look(
    seen: Look,
    session: Session,
    facts: Facts,
    manifest: Manifest,
    keep: int,
    *,
    verify: bool = False,
) -> Look:
    """Take the lease; look again where another may have written since `seen`."""
    lease = session.lease
    if lease is None:
        return seen
    lease.take()
    if facts.store is False or lease.follows(seen.holders.generation):
        return seen
    return look_at(session, facts, manifest, keep, verify=verify)


def plan_device(session: Session, bench: Workbench, *, verify: bool = False) -> Planned:
    """What deploy would do on this device. Nothing is changed.

    `verify` hashes every blob on the device instead of believing its size.
    """
    facts = facts_of(session)
    target = bench.target_for(session.host, facts)
    parts = bench.parts(target, facts.soc.hexagon_arch, bench.python_of(facts))
    manifest = bench.manifest(parts)
    seen = look_at(session, facts, manifest, bench.playbook.keep, verify=verify)
    state, actions = seen.state, seen.actions
    system = look(session, bench.playbook.system, facts)
    findings = preflight(
        bench.bundle,
        parts.runtime,
        parts.selection,
        parts.target,
        facts,
        bytes_to_send=sum(one.room for one in actions if isinstance(one, SendBlobs)),
        files_to_send=_files(actions),
    )
    findings = (*cured(findings, system.plan), *system.plan.findings)
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
            *seen.holders.notes(),
            *system.plan.notes,
            *_notes(facts, bench, parts, state),
            *way(session, sum(action.bytes for action in actions)),
        ),
        then=_then(bench),
    )
    return Planned(plan, system.become, seen.holders.generation)


def plan_system(session: Session, spec: SystemSpec) -> Planned:
    """Only what a playbook wants of the system; at most three round trips."""
    facts = facts_of(session)
    system = look(session, spec, facts)
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


def facts_of(session: Session) -> Facts:
    """The facts of the device that is meant, with a base folder that can be used."""
    facts = gather(session.transport, session.host, Deadline(FACTS_SECONDS))
    if facts.windows is None:
        check_base(facts.base_dir, session.host.name)
    check_identity(session.host, facts)
    session.boot = facts.boot_id
    return facts


def check_base(base: str, host: str) -> None:
    """Refuse a base folder that search paths cannot hold: ld.so splits at both marks."""
    if ":" in base or ";" in base:
        raise InputError(
            f"the base folder {base} has a ':' or ';', which separate folders in "
            "LD_LIBRARY_PATH and ADSP_LIBRARY_PATH",
            device=host,
            hint="set `base_dir:` in the inventory to another folder",
        )


def ask_state(
    session: Session, facts: Facts, manifest: Manifest, *, verify: bool = False
) -> ReleaseState:
    """One round trip: what the device has of `manifest`."""
    text = _state_text(session, facts, manifest, verify=verify)
    return parse_state(text, session.host.name, manifest)


def _state_text(session: Session, facts: Facts, manifest: Manifest, *, verify: bool) -> str:
    """The same as text, and who holds the board."""
    seconds = 60.0
    if verify:
        seconds += sum(item.size for item in manifest.files) / HASHING_BYTES_PER_SECOND
    command = who_command(state_command(facts, manifest, verify=verify))
    return session.ask(command, "state", stdin=state_input(manifest), seconds=seconds).text


def _with_deltas(session: Session, facts: Facts, actions: tuple[Action, ...]) -> tuple[Action, ...]:
    return tuple(
        replace(one, blobs=with_known(session.depot, facts, one.blobs))
        if isinstance(one, SendBlobs)
        else one
        for one in actions
    )


def _files(actions: tuple[Action, ...]) -> int:
    return sum(len(action.blobs) for action in actions if isinstance(action, SendBlobs))


def _then(bench: Workbench) -> tuple[str, ...]:
    run = bench.playbook.run
    if run is None:
        return ()
    lines, size = run.prompt.count("\n") + 1, len(run.prompt.encode())
    turns = f"{run.warmups} warm-up and {run.repeats} counted" if run.warmups else f"{run.repeats}"
    how = f"at most {run.max_tokens} tokens, {run.timeout:g} s each"
    return (
        f"run {run.runner} in the release: {turns}; prompt of {size} bytes, {lines} lines; {how}",
        "collect each profile: init, TTFT, prompt and generation rate, with conditions",
    )


def _notes(facts: Facts, bench: Workbench, parts: Parts, state: ReleaseState) -> tuple[str, ...]:
    bundle = bench.bundle
    compiled = f"compiled with QAIRT {bundle.qairt or 'unknown'} ({bundle.qairt_source})"
    notes = [f"bundle {bundle.name}: {compiled}; runtime {parts.runtime.build_id}, {parts.target}"]
    if facts.emulated:
        notes.append("emulated: no Hexagon NPU here; numbers are those of the HTP emulator")
    if not facts.tools.sha256:
        notes.append("no hash tool on the device: what arrives is read back and hashed here")
    if state.bad:
        notes.append(f"{len(state.bad)} damaged files in the store are sent again")
    if not facts.tools.sync_file:
        notes.append("no `sync FILE` on the device: a whole sync before each rename")
    if parts.runtime.source.kind == "wheel":
        notes.append(f"runtime from {parts.runtime.source.name}")
    return tuple(notes)
