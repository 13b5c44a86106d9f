"""Releases on a device: what is there, and the commands that stage, switch and prune."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fleet.content.sources import key_of
from fleet.device.hand import hand_command, hand_for, has_hand, seal
from fleet.device.shell import device_script, framed, odd_answer
from fleet.model.command import Command, script
from fleet.model.facts import Facts
from fleet.model.files import FileRef
from fleet.model.manifest import Manifest
from fleet.model.plan import (
    Action,
    Blob,
    ProbeHealth,
    PruneReleases,
    SendBlobs,
    StageRelease,
    SwitchRelease,
)

_SHA = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class ReleaseState:
    """What a device has of one release. `parts` maps sha256 → bytes of an unfinished upload,
    `keys` its name where that is not the hash, `bases` the sha256 of a large file it lacks →
    that of what the live release has under its name, `spares` those that no release needs.
    """

    current: str | None
    installed: bool
    history: tuple[str, ...]
    have: frozenset[str]
    parts: dict[str, int]
    bad: frozenset[str]
    unlinked: frozenset[str]
    bases: Mapping[str, str] = field(default_factory=dict)
    sealed: bool = False
    keys: Mapping[str, str] = field(default_factory=dict)
    spares: tuple[str, ...] = ()

    @property
    def previous(self) -> str | None:
        """The release that a rollback goes to: the newest in history that is not current."""
        return next((past for past in reversed(self.history) if past != self.current), None)


def release_dir(base: str, name: str, release_id: str) -> str:
    """`<base>/releases/<name>/<id>`."""
    return f"{base}/releases/{name}/{release_id}"


def state_command(facts: Facts, manifest: Manifest, *, verify: bool) -> Command:
    """Asks for the state of `manifest`; with `verify` every blob is hashed on the device."""
    by_hand = has_hand(facts)
    mode = "hash" if verify and (by_hand or facts.tools.sha256) else "size"
    args = (facts.base_dir, manifest.name, manifest.id, mode)
    if by_hand:
        return hand_command(facts, "state", *args)
    return device_script("state", *args, *facts.tools.sha256)


def state_input(facts: Facts, manifest: Manifest) -> Iterator[bytes]:
    """Standard input of `state_command`."""
    rows = []
    for item in manifest.files:
        key = f"{key_of(item) or '-'}\t" if facts.windows is None else ""
        rows.append(f"{item.sha256}\t{item.size}\t{key}{item.name}\n")
    yield hand_for(facts) + "".join(rows).encode()


def seal_command(facts: Facts, manifest: Manifest) -> tuple[Command, bytes]:
    """Asks only whether all is as it was at the switch; for devices with `has_hand`.

    With its standard input.
    """
    args = (facts.base_dir, manifest.name, manifest.id)
    if facts.tools.find_printf:
        return device_script("seal", *args), b""
    return hand_command(facts, *args), seal()


def parse_state(text: str, host: str, manifest: Manifest) -> ReleaseState:
    """The answer of `state_command`. Raises DeviceError when it was cut or makes
    no sense.
    """
    found: dict[str, list[str]] = {
        one: [] for one in ("history", "have", "bad", "unlinked", "spare")
    }
    current: str | None = None
    flags = {"installed": False, "sealed": False}
    parts: dict[str, int] = {}
    keys: dict[str, str] = {}
    bases: dict[str, str] = {}
    for kind, *rest in framed(text, "fleet-state 1", host):
        try:
            if kind == "current":
                current = rest[0]
            elif kind in flags:
                flags[kind] = True
            elif kind == "part":
                parts[rest[0]] = int(rest[1])
                keys.update({rest[0]: rest[2]} if rest[2:] else {})
            elif kind == "base":
                bases[rest[0]] = rest[1]
            elif kind in found:
                found[kind].append(rest[0])
        except (IndexError, ValueError) as error:
            raise odd_answer(" ".join((kind, *rest)), host) from error
    return ReleaseState(
        current=current,
        installed=flags["installed"],
        history=tuple(found["history"]),
        have=frozenset(manifest.blobs if flags["sealed"] else found["have"])
        - frozenset(found["bad"]),
        parts=parts,
        bad=frozenset(found["bad"]),
        unlinked=frozenset(found["unlinked"]),
        bases={sha: old for sha, old in bases.items() if _SHA.fullmatch(old)},
        keys=keys,
        spares=tuple(one for one in found["spare"] if _SHA.fullmatch(one)),
        sealed=flags["sealed"],
    )


def actions_for(manifest: Manifest, state: ReleaseState, keep: int) -> tuple[Action, ...]:
    """What has to be done so that `manifest` is current and whole; () when it is."""
    lacking = [item for sha, item in manifest.blobs.items() if sha not in state.have]
    is_current = state.current == manifest.id and state.installed
    if is_current and not lacking and not state.unlinked:
        return ()
    actions: list[Action] = []
    if lacking:
        blobs = tuple(resumed(item, state) for item in lacking)
        actions.append(SendBlobs(blobs))
    actions.append(StageRelease(manifest))
    if "health" in manifest.origin:
        actions.append(ProbeHealth(manifest))
    if not is_current:
        actions.append(SwitchRelease(manifest.name, manifest.id, state.current))
        actions.append(PruneReleases(manifest.name, keep))
    return tuple(actions)


def resumed(item: FileRef, state: ReleaseState) -> Blob:
    """A blob that the device lacks, from where its `.part` ends."""
    part = state.parts.get(item.sha256, 0)
    base = state.bases.get(item.sha256, "")
    if part > item.size:
        return Blob(item, 0, base, spares=state.spares)
    spares = () if part else state.spares
    return Blob(item, part, base, part=state.keys.get(item.sha256, ""), spares=spares)


def switch_command(base: str, name: str, release_id: str, run_id: str) -> Command:
    """Points `current/<name>` to a release and writes it into the history."""
    return device_script("switch", base, name, release_id, run_id)


def switch_and_prune(base: str, name: str, release_id: str, run_id: str, keep: int) -> Command:
    """Both in one round trip. What fails after the line `switched` is the pruning."""
    switch, prune = (device_script(one).argv[2] for one in ("switch", "prune"))
    text = f'(\n{switch}) || exit\nset -- "$1" "$2" "$5"\n{prune}'
    args = (base, name, release_id, run_id, str(keep))
    return script(text, *args, name="switch_and_prune")
