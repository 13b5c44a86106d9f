"""The questions to a device about its facts and a release; each takes one round trip."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fleet.device.shell import failed
from fleet.engine.pool import DeviceResult
from fleet.engine.session import Session
from fleet.engine.transfer.deltas import with_known
from fleet.facts.gather import check_identity, gather
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
    """The state of a release on a device, the actions to do, and the holder of the lease."""

    state: ReleaseState
    actions: tuple[Action, ...]
    holders: Holders


@dataclass(frozen=True)
class Survey:
    """The questions to a device about `manifest`, of which `keep` releases are to stay.

    Raises InputError for names that the device cannot have.
    """

    session: Session
    facts: Facts
    manifest: Manifest
    keep: int

    def __post_init__(self) -> None:
        backend_for(self.facts).check_names(self.manifest)

    def look(self, *, verify: bool = False, there: frozenset[str] = frozenset()) -> Look:
        """Return the state of the release, the actions to do and the holders of the device.

        `verify` hashes the files. A device without a store of fleet is not asked: it has nothing
        but the blobs `there`, which were sent since the facts were read. Its holders are asked for
        a plan only, because a deploy takes the lease next.
        """
        session = self.session
        if self.facts.store is False:
            state = ReleaseState(None, False, (), there, {}, frozenset(), frozenset())
            holders = NOBODY
            if session.lease is None:
                text = session.ask(who_command(), "state").text
                holders = holders_in(text, session.host.name)
            return Look(state, actions_for(self.manifest, state, self.keep), holders)
        return self._parsed(_state_text(session, self.facts, self.manifest, verify=verify))

    def first(self) -> Look | None:
        """Ask only if everything is unchanged since the switch. Returns None if it is not.

        A device that cannot answer this short question is asked in full. The holders are not asked
        if all is unchanged, because there is nothing to do then.
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
        """Take the lease and look, in one round trip."""
        lease = self.session.lease
        if lease is None or self.facts.store is False:
            return self.look()
        asked = backend_for(self.facts).state(self.manifest)
        done = lease.take(asked.command, [*asked.stdin])
        if done is None:
            return self.look()
        if not done.ok:
            raise failed(done, "state", self.session.host.name)
        return self._parsed(done.text)

    def again(self, look: Look, *, verify: bool = False) -> Look:
        """Take the lease, and look again if someone else may have written since `look`.

        `verify` hashes the files again. Without a lease, return `look`.
        """
        lease = self.session.lease
        if lease is None:
            return look
        lease.take()
        if self.facts.store is False or lease.follows(look.holders.generation):
            return look
        return self.look(verify=verify)

    def _parsed(self, text: str) -> Look:
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
        """Tell the transfer which blobs the device has, so that neighbours can get them there."""
        if self.session.transfer.neighbours is not None:
            from fleet.engine.transfer.relaying import tell_of  # noqa: PLC0415 - only to relay

            tell_of(self.session, self.facts, state.have)


def gathered(session: Session, *, short: bool = False) -> Facts:
    """Return the facts that the device states, without judging them. `short` asks for few."""
    return gather(session.transport, session.host, Deadline(FACTS_SECONDS), short=short)


def facts_of(session: Session, *, short: bool = False) -> Facts:
    """Return the facts of the intended device, with a base folder that can be used.

    With `short`, read only the facts that sending files needs. Raises InputError for a bad base
    folder and IdentityError for another device.
    """
    facts = session.reading(lambda: gathered(session, short=short))
    if facts.posix:
        check_base(facts.base_dir)
    check_identity(session.host, facts)
    session.boot = facts.boot_id
    return facts


def check_base(base: str) -> None:
    """Raise InputError for a base folder with `:` or `;`, which ld.so takes for separators."""
    if ":" in base or ";" in base:
        raise InputError(
            f"the base folder {base} contains ':' or ';', which separate the folders in "
            "LD_LIBRARY_PATH and ADSP_LIBRARY_PATH",
            hint="set `base_dir:` in the inventory to another folder",
        )


def ask_state(
    session: Session, facts: Facts, manifest: Manifest, *, verify: bool = False
) -> ReleaseState:
    """Return the state of a release in one round trip. `verify` hashes its files."""
    text = _state_text(session, facts, manifest, verify=verify)
    return parse_state(text, session.host.name, manifest)


def _state_text(session: Session, facts: Facts, manifest: Manifest, *, verify: bool) -> str:
    """Return the state of a release and the board's holders as text. `verify` hashes files."""
    seconds = 60.0
    if verify:
        seconds += sum(item.size for item in manifest.files) / HASHING_BYTES_PER_SECOND
    asked = backend_for(facts).state(manifest, verify=verify)
    command = who_command(asked.command)
    return session.ask(command, "state", stdin=asked.stdin, seconds=seconds).text


def gather_facts(session: Session, result: DeviceResult[Facts]) -> None:
    """Read the facts of a device, in one round trip."""
    result.value = gathered(session)
    result.outcome = "ok"
