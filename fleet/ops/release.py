"""The releases on a device: their state, and the necessary actions."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from fleet.device.shell import framed, odd_answer
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


class ReleaseState(Struct, frozen=True):
    """The state of one release on a device.

    `parts` maps sha256 → bytes of an unfinished upload, `keys` maps it → its name if that is not
    the hash. `bases` maps the sha256 of a large missing file → that of the file with its name in
    the live release. `recyclable` are blobs that no release needs.
    """

    current: str | None
    installed: bool
    history: tuple[str, ...]
    have: frozenset[str]
    parts: dict[str, int]
    bad: frozenset[str]
    unlinked: frozenset[str]
    bases: Mapping[str, str] = {}
    sealed: bool = False
    old: bool = False  # made by an earlier fleet, with its files among those of the user
    keys: Mapping[str, str] = {}
    recyclable: tuple[str, ...] = ()

    @property
    def previous(self) -> str | None:
        """The release for a rollback: the newest in the history that is not current, or None."""
        return next((past for past in reversed(self.history) if past != self.current), None)


def release_dir(base: str, name: str, release_id: str) -> str:
    """Return `<base>/releases/<name>/<id>`."""
    return f"{base}/releases/{name}/{release_id}"


def own_dir(base: str, name: str, release_id: str) -> str:
    """Return `<base>/meta/<name>/<id>`, the folder of fleet's own files of a release.

    Releases of an earlier fleet contain these files themselves.
    """
    return f"{base}/meta/{name}/{release_id}"


def parse_state(text: str, host: str, manifest: Manifest) -> ReleaseState:
    """Parse the answer of state.sh. Raises DeviceError if it is truncated or invalid."""
    shas: dict[str, list[str]] = {
        kind: [] for kind in ("history", "have", "bad", "unlinked", "spare")
    }
    current: str | None = None
    flags = {"installed": False, "old": False, "sealed": False}
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
            elif kind in shas:
                shas[kind].append(rest[0])
        except (IndexError, ValueError) as error:
            raise odd_answer(" ".join((kind, *rest)), host) from error
    return ReleaseState(
        current=current,
        installed=flags["installed"],
        old=flags["old"],
        history=tuple(shas["history"]),
        have=frozenset(manifest.blobs if flags["sealed"] else shas["have"])
        - frozenset(shas["bad"]),
        parts=parts,
        bad=frozenset(shas["bad"]),
        unlinked=frozenset(shas["unlinked"]),
        bases={sha: old for sha, old in bases.items() if _SHA.fullmatch(old)},
        keys=keys,
        recyclable=tuple(sha for sha in shas["spare"] if _SHA.fullmatch(sha)),
        sealed=flags["sealed"],
    )


def actions_for(manifest: Manifest, state: ReleaseState, keep: int) -> tuple[Action, ...]:
    """Return the actions that make `manifest` current and complete, () if it is."""
    lacking = [item for sha, item in manifest.blobs.items() if sha not in state.have]
    is_current = state.current == manifest.id and state.installed and not state.old
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
    """Return a missing blob, resumed at the end of its `.part`."""
    part = state.parts.get(item.sha256, 0)
    base = state.bases.get(item.sha256, "")
    if part > item.size:
        return Blob(item, 0, base, recyclable=state.recyclable)
    recyclable = () if part else state.recyclable
    return Blob(item, part, base, part=state.keys.get(item.sha256, ""), recyclable=recyclable)
