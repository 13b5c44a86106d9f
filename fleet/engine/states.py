"""What a device is and what it has of a release: the questions, each one round trip."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fleet.device.shell import failed
from fleet.engine.session import Session
from fleet.engine.transfer.deltas import with_known
from fleet.facts.gather import gather
from fleet.facts.identity import check_identity
from fleet.model.deadline import Deadline
from fleet.model.errors import InputError
from fleet.model.facts import Facts
from fleet.model.manifest import Manifest
from fleet.model.plan import Action, SendBlobs
from fleet.ops.lease import Holders, holders_in, who_command
from fleet.ops.release import (
    ReleaseState,
    actions_for,
    parse_state,
    seal_command,
    state_command,
    state_input,
)

FACTS_SECONDS = 30.0
HASHING_BYTES_PER_SECOND = 20e6  # sha256sum on a small core without SHA instructions


@dataclass(frozen=True)
class Look:
    """What a device has of a release, what is to be done, and who holds it. One round trip."""

    state: ReleaseState
    actions: tuple[Action, ...]
    holders: Holders


def look_at(
    session: Session,
    facts: Facts,
    manifest: Manifest,
    keep: int,
    *,
    verify: bool = False,
    there: frozenset[str] = frozenset(),
) -> Look:
    """Ask for the state of `manifest`; of a device that had no store of ours it is known, as is
    what was sent `there` since.

    Who holds such a device is asked for a plan only: a deploy takes the lease next.
    """
    host = session.host.name
    if facts.store is False:
        state = ReleaseState(None, False, (), there, {}, frozenset(), frozenset())
        holders = Holders()
        if session.lease is None:
            holders = holders_in(session.ask(who_command(), "state").text, host)
        return Look(state, actions_for(manifest, state, keep), holders)
    text = _state_text(session, facts, manifest, verify=verify)
    return _looked(session, facts, manifest, keep, text)


def _looked(session: Session, facts: Facts, manifest: Manifest, keep: int, text: str) -> Look:
    host = session.host.name
    state = parse_state(text, host, manifest)
    _tell(session, facts, state)
    actions = _with_deltas(session, facts, actions_for(manifest, state, keep))
    return Look(state, actions, holders_in(text, host))


def _tell(session: Session, facts: Facts, state: ReleaseState) -> None:
    """Neighbours may have it from there."""
    if session.depot.neighbours is not None:
        from fleet.engine.transfer.relaying import tell_of  # noqa: PLC0415 - only with --relay

        tell_of(session, facts, state.have)


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


def sealed_look(session: Session, facts: Facts, manifest: Manifest) -> Look | None:
    """Nothing but whether all is as at the switch; None where it is not. For `has_hand`.

    Who holds the device is not asked: nothing is to be done there.
    """
    command, stdin = seal_command(facts, manifest)
    text = session.ask(command, "state", stdin=[stdin] if stdin else ()).text
    state = parse_state(text, session.host.name, manifest)
    if not state.sealed:
        return None
    _tell(session, facts, state)
    return Look(state, (), Holders())


def leased_look(session: Session, facts: Facts, manifest: Manifest, keep: int) -> Look:
    """Take the lease, then look: one round trip. Not on Windows."""
    lease = session.lease
    if lease is None or facts.store is False:
        return look_at(session, facts, manifest, keep)
    done = lease.take(state_command(facts, manifest, verify=False), [*state_input(facts, manifest)])
    if done is None:
        return look_at(session, facts, manifest, keep)
    if not done.ok:
        raise failed(done, "state", session.host.name)
    return _looked(session, facts, manifest, keep, done.text)


def facts_of(session: Session, *, short: bool = False) -> Facts:
    """The facts of the device that is meant, with a base folder that can be used.

    `short`: what bringing files needs, no more.
    """
    facts = gather(session.transport, session.host, Deadline(FACTS_SECONDS), short=short)
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
    return session.ask(command, "state", stdin=state_input(facts, manifest), seconds=seconds).text


def _with_deltas(session: Session, facts: Facts, actions: tuple[Action, ...]) -> tuple[Action, ...]:
    return tuple(
        replace(one, blobs=with_known(session.depot, facts, one.blobs))
        if isinstance(one, SendBlobs)
        else one
        for one in actions
    )
