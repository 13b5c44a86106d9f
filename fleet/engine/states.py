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
from fleet.ops.backend import backend_for
from fleet.ops.lease import NOBODY, Holders, holders_in, who_command
from fleet.ops.release import ReleaseState, actions_for, parse_state

FACTS_SECONDS = 30.0
HASHING_BYTES_PER_SECOND = 20e6  # sha256sum on a small core without SHA instructions


@dataclass(frozen=True)
class Look:
    """What a device has of a release, what is to be done, and who holds it. One round trip."""

    state: ReleaseState
    actions: tuple[Action, ...]
    holders: Holders


@dataclass(frozen=True)
class Survey:
    """Looks at what a device has of `manifest`; `keep` releases are to stay.

    Raises InputError for names that the device cannot have.
    """

    session: Session
    facts: Facts
    manifest: Manifest
    keep: int

    def __post_init__(self) -> None:
        backend_for(self.facts).check_names(self.manifest)

    def look(self, *, verify: bool = False, there: frozenset[str] = frozenset()) -> Look:
        """Ask; of a device without a store of ours it is known, as is what was sent `there` since.

        Who holds such a device is asked for a plan only: a deploy takes the lease next.
        """
        session = self.session
        if self.facts.store is False:
            state = ReleaseState(None, False, (), there, {}, frozenset(), frozenset())
            holders = NOBODY
            if session.lease is None:
                text = session.ask(who_command(), "state").text
                holders = holders_in(text, session.host.name)
            return Look(state, actions_for(self.manifest, state, self.keep), holders)
        return self._heard(_state_text(session, self.facts, self.manifest, verify=verify))

    def first(self) -> Look | None:
        """Where the device tells it, only whether all is as at the switch; None where it is not.

        Who holds the device is not asked then: nothing is to be done there.
        """
        asked = backend_for(self.facts).stamped(self.manifest)
        if asked is None:
            return self.look()
        text = self.session.ask(asked.command, "state", stdin=asked.stdin).text
        state = parse_state(text, self.session.host.name, self.manifest)
        if not state.sealed:
            return None
        self._tell(state)
        return Look(state, (), NOBODY)

    def leased(self) -> Look:
        """Take the lease, then look: one round trip."""
        lease = self.session.lease
        if lease is None or self.facts.store is False:
            return self.look()
        asked = backend_for(self.facts).state(self.manifest)
        done = lease.take(asked.command, [*asked.stdin])
        if done is None:
            return self.look()
        if not done.ok:
            raise failed(done, "state", self.session.host.name)
        return self._heard(done.text)

    def again(self, seen: Look, *, verify: bool = False) -> Look:
        """Take the lease; look again where another may have written since `seen`."""
        lease = self.session.lease
        if lease is None:
            return seen
        lease.take()
        if self.facts.store is False or lease.follows(seen.holders.generation):
            return seen
        return self.look(verify=verify)

    def _heard(self, text: str) -> Look:
        host, transfer = self.session.host.name, self.session.transfer
        state = parse_state(text, host, self.manifest)
        self._tell(state)
        actions = tuple(
            replace(action, blobs=with_known(transfer, self.facts, action.blobs))
            if isinstance(action, SendBlobs)
            else action
            for action in actions_for(self.manifest, state, self.keep)
        )
        return Look(state, actions, holders_in(text, host))

    def _tell(self, state: ReleaseState) -> None:
        """Neighbours may have it from there."""
        if self.session.transfer.neighbours is not None:
            from fleet.engine.transfer.relaying import tell_of  # noqa: PLC0415 - only to relay

            tell_of(self.session, self.facts, state.have)


def gathered(session: Session, *, short: bool = False) -> Facts:
    """What the device says of itself; nothing of it is judged."""
    return gather(session.transport, session.host, Deadline(FACTS_SECONDS), short=short)


def facts_of(session: Session, *, short: bool = False) -> Facts:
    """The facts of the device that is meant, with a base folder that can be used.

    `short`: what bringing files needs, no more.
    """
    facts = session.reading(lambda: gathered(session, short=short))
    if facts.posix:
        check_base(facts.base_dir)
    check_identity(session.host, facts)
    session.boot = facts.boot_id
    return facts


def check_base(base: str) -> None:
    """Refuse a base folder that search paths cannot hold: ld.so splits at both marks."""
    if ":" in base or ";" in base:
        raise InputError(
            f"the base folder {base} contains ':' or ';', which separate the folders in "
            "LD_LIBRARY_PATH and ADSP_LIBRARY_PATH",
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
    asked = backend_for(facts).state(manifest, verify=verify)
    command = who_command(asked.command)
    return session.ask(command, "state", stdin=asked.stdin, seconds=seconds).text
