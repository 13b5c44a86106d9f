"""Actions as data: plan shows them, apply executes them, tests read them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fleet.model.command import Command
from fleet.model.facts import Facts
from fleet.model.files import FileRef, human_bytes
from fleet.model.finding import Finding
from fleet.model.inventory import Host
from fleet.model.manifest import Manifest


@dataclass(frozen=True)
class Action:
    """An action on a device. `bytes` is payload to send.

    An action with `needs_root` names its commands literally; nothing else runs as root. `no_undo`
    is the reason if the action cannot be undone.
    """

    needs_root = False
    bytes = 0
    no_undo = ""
    PLAIN: ClassVar[str] = "action=__class__.__name__ needs_root bytes no_undo **shown"

    def describe(self) -> str:
        """Return one line for people."""
        raise NotImplementedError

    def commands(self) -> tuple[Command, ...]:
        """Return the exact commands that run as root, () for actions of the deploy user."""
        return ()

    def undo(self) -> tuple[Command, ...]:
        """Return the root commands that undo the action, () if `no_undo` has the reason."""
        return ()

    def as_shell(self) -> str:
        """Return the commands as text for an administrator's shell, ready to copy."""
        return "\n".join(shlex.join(command.argv) for command in self.commands())

    @property
    def shown(self) -> dict[str, Any]:
        """`describe`, and the argv lists of `commands` and `undo`, for JSON."""
        return {
            "describe": self.describe(),
            "commands": [command.argv for command in self.commands()],
            "undo": [command.argv for command in self.undo()],
        }


@dataclass(frozen=True)
class Piece:
    """A piece of new content: `count` blocks of 64 KiB of the old blob from block `first` on.

    If `count` is 0, it is the bytes `start` to `end` of the new content itself. `stays` means that
    the recyclable blob already has these bytes at this place.
    """

    start: int
    end: int
    first: int = 0
    count: int = 0
    stays: bool = False

    @property
    def bytes(self) -> int:
        """The number of bytes to send."""
        return 0 if self.count or self.stays else self.end - self.start


@dataclass(frozen=True)
class Delta:
    """The content of a blob as a difference from a blob on the device; pieces are in order.

    `spare` is the sha256 of a file that no release needs and that becomes the new one, "" for a new
    file. `pieces` is empty if the differences are found while they are sent.
    """

    base: str
    pieces: tuple[Piece, ...]
    spare: str = ""

    @property
    def bytes(self) -> int:
        """The number of bytes to send."""
        return sum(piece.bytes for piece in self.pieces)

    @property
    def staying(self) -> int:
        """The number of bytes that the recyclable blob already has at their place."""
        return sum(piece.end - piece.start for piece in self.pieces if piece.stays)


@dataclass(frozen=True)
class Blob:
    """A blob to send from `offset` on (the bytes that the device already has).

    `base` is the sha256 of the file with the same name in the live release, "" if there is none.
    With `delta` only the difference from it is sent. `recyclable` are contents on the device that
    no release needs. `part` is the name of the partial file on the device if it is not the hash.
    While a file is still being hashed, the sha256 of `file` is a name for this state of it.
    """

    file: FileRef
    offset: int = 0
    base: str = ""
    delta: Delta | None = None
    part: str = ""
    recyclable: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        """True if the content itself is sent."""
        return self.delta is None

    @property
    def left(self) -> int:
        """The number of content bytes that the device lacks."""
        return self.file.size - self.offset

    @property
    def wire(self) -> int:
        """The number of bytes to send before compression, 0 if not known yet."""
        return min(self.left, self.delta.bytes) if self.delta else self.left


@dataclass(frozen=True)
class SendBlobs(Action):
    """An action that sends the missing blobs of the device's store in one stream."""

    no_undo = "the next deploy removes files that no release uses"
    blobs: tuple[Blob, ...] = ()

    @property
    def bytes(self) -> int:  # type: ignore[override]
        """The payload bytes of all blobs, before compression."""
        return sum(blob.wire for blob in self.blobs)

    @property
    def room(self) -> int:
        """The bytes that the blobs need on the device's disk."""
        return sum(blob.left - (blob.delta.staying if blob.delta else 0) for blob in self.blobs)

    def describe(self) -> str:
        """Return `send 12 files, 108.1 MB (1 resumed, 1 as a delta: 1.1 MB of 1.1 GB)`."""
        remarks = []
        if resumed := sum(1 for blob in self.blobs if blob.offset):
            remarks.append(f"{resumed} resumed")
        if deltas := [blob for blob in self.blobs if blob.delta]:
            part, whole = sum(delta.wire for delta in deltas), sum(delta.left for delta in deltas)
            remarks.append(f"{len(deltas)} as a delta: {human_bytes(part)} of {human_bytes(whole)}")
        tail = f" ({', '.join(remarks)})" if remarks else ""
        return f"send {len(self.blobs)} files, {human_bytes(self.bytes)}{tail}"


@dataclass(frozen=True)
class StageRelease(Action):
    """An action that creates the release folder of links next to the live one."""

    no_undo = "the staged release is not in use; the next deploy removes it"
    manifest: Manifest

    def describe(self) -> str:
        """Return `stage tiny-genie/0123456789abcdef: 14 files and env.sh`."""
        manifest, count = self.manifest, len(self.manifest.files)
        return f"stage {manifest.name}/{manifest.id}: {count} files and env.sh"


@dataclass(frozen=True)
class ProbeHealth(Action):
    """An action that opens a real NPU session with the staged release."""

    no_undo = "the health probe changes nothing"
    manifest: Manifest

    def describe(self) -> str:
        """Return `open an NPU session with tiny-genie/...`; `test ...` for a run off the NPU."""
        what = "test" if self.manifest.origin.get("npu") is False else "open an NPU session with"
        return f"{what} {self.manifest.name}/{self.manifest.id}"


@dataclass(frozen=True)
class SwitchRelease(Action):
    """An action that points `current` to a release, in one rename."""

    no_undo = "fleet rollback (switches back)"
    name: str
    id: str
    previous: str | None = None

    def describe(self) -> str:
        """Return `switch current/tiny-genie: <old> -> <new>`."""
        return f"switch current/{self.name}: {self.previous or 'nothing'} -> {self.id}"


@dataclass(frozen=True)
class PruneReleases(Action):
    """An action that removes releases beyond the newest `keep`, never the current or
    previous one.
    """

    no_undo = "deploy a removed release again to get it back"
    name: str
    keep: int

    def describe(self) -> str:
        """Return `keep the newest 3 releases of tiny-genie`."""
        return f"keep the newest {self.keep} releases of {self.name}"


@dataclass(frozen=True)
class DevicePlan:
    """The plan of a deploy on one device. It is refused if a finding refuses.

    The first `system` actions change the system; `become` says how the login becomes root for them,
    "" if not needed. `then` lists what runs after a change.
    """

    host: Host
    facts: Facts
    target: str
    manifest: Manifest
    findings: tuple[Finding, ...] = ()
    actions: tuple[Action, ...] = ()
    system: int = 0
    become: str = ""
    current: str | None = None
    notes: tuple[str, ...] = field(default=())
    then: tuple[str, ...] = field(default=())
    PLAIN: ClassVar[str] = """host=host.name target release=manifest.id current
        emulated=facts.emulated refused unchanged bytes become findings actions notes then"""

    @property
    def system_steps(self) -> tuple[Action, ...]:
        """The actions on the system of the device, in order."""
        return self.actions[: self.system]

    @property
    def release_steps(self) -> tuple[Action, ...]:
        """The actions on releases, which follow those on the system."""
        return self.actions[self.system :]

    @property
    def refused(self) -> bool:
        """True if nothing may be done."""
        return any(finding.refuses for finding in self.findings)

    @property
    def unchanged(self) -> bool:
        """True if the device is already in the desired state."""
        return not self.refused and not self.actions

    @property
    def bytes(self) -> int:
        """The payload bytes to send."""
        return sum(action.bytes for action in self.actions)
