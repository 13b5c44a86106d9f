"""Actions as data: what plan shows, apply does, and tests read."""

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
    """One thing that will be done on a device. `bytes` is payload to send.

    An action with `needs_root` names its commands literally; nothing else runs as root.
    `no_undo` says why there is no way back, where there is none.
    """

    needs_root = False
    bytes = 0
    no_undo = ""
    PLAIN: ClassVar[str] = "action=__class__.__name__ needs_root bytes no_undo **shown"

    def describe(self) -> str:
        """One line for people."""
        raise NotImplementedError

    def commands(self) -> tuple[Command, ...]:
        """What runs as root, exactly; () for actions of the deploy user."""
        return ()

    def undo(self) -> tuple[Command, ...]:
        """The commands that take it back, as root; () where `no_undo` gives the reason."""
        return ()

    def as_shell(self) -> str:
        """The commands as text for an administrator's shell, ready to copy."""
        return "\n".join(shlex.join(command.argv) for command in self.commands())

    @property
    def shown(self) -> dict[str, Any]:
        """What methods say, for JSON."""
        return {
            "describe": self.describe(),
            "commands": [command.argv for command in self.commands()],
            "undo": [command.argv for command in self.undo()],
        }


@dataclass(frozen=True)
class Piece:
    """A piece of new content: `count` blocks of 64 KiB of the old blob from block `first` on, or
    (`count` 0) the bytes `start` to `end` of the new content itself. `stays`: the recyclable blob
    that is made over has those bytes at that place.
    """

    start: int
    end: int
    first: int = 0
    count: int = 0
    stays: bool = False

    @property
    def bytes(self) -> int:
        """Bytes that have to be sent."""
        return 0 if self.count or self.stays else self.end - self.start


@dataclass(frozen=True)
class Delta:
    """How the content of a blob comes out of one that the device has; pieces in order. `spare`:
    the sha256 of a file no release needs any more, which becomes the new one; "" for a new file.
    Without pieces where they are found while they are sent.
    """

    base: str
    pieces: tuple[Piece, ...]
    spare: str = ""

    @property
    def bytes(self) -> int:
        """Bytes that have to be sent."""
        return sum(piece.bytes for piece in self.pieces)

    @property
    def staying(self) -> int:
        """Bytes that the recyclable blob has at their place."""
        return sum(piece.end - piece.start for piece in self.pieces if piece.stays)


@dataclass(frozen=True)
class Blob:
    """One blob to send from `offset` on (bytes that the device already has).

    `base` is the sha256 of what the live release has under the same name, "" where it has
    nothing; with `delta` only what differs from it is sent. `recyclable` are contents that the
    device has and needs no more. `part` is the name under which the device has the
    first bytes, where that is not the hash. Of a file that is still being hashed the sha256 of
    `file` is a name for this state of it.
    """

    file: FileRef
    offset: int = 0
    base: str = ""
    delta: Delta | None = None
    part: str = ""
    recyclable: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether the content itself is sent."""
        return self.delta is None

    @property
    def left(self) -> int:
        """Bytes of content that the device lacks."""
        return self.file.size - self.offset

    @property
    def wire(self) -> int:
        """Bytes to send for them, before compression; 0 where that is not known yet."""
        return min(self.left, self.delta.bytes) if self.delta else self.left


@dataclass(frozen=True)
class SendBlobs(Action):
    """Send what the store on the device lacks, in one stream."""

    no_undo = "the next deploy removes files that no release uses"
    blobs: tuple[Blob, ...] = ()

    @property
    def bytes(self) -> int:  # type: ignore[override]
        """Payload bytes of all blobs, before compression."""
        return sum(blob.wire for blob in self.blobs)

    @property
    def room(self) -> int:
        """Bytes of the device's disk that they take."""
        return sum(blob.left - (blob.delta.staying if blob.delta else 0) for blob in self.blobs)

    def describe(self) -> str:
        """`send 12 files, 108.1 MB (1 resumed, 1 as what differs: 1.1 MB of 1.1 GB)`."""
        told = []
        if resumed := sum(1 for blob in self.blobs if blob.offset):
            told.append(f"{resumed} resumed")
        if deltas := [blob for blob in self.blobs if blob.delta]:
            part, whole = sum(delta.wire for delta in deltas), sum(delta.left for delta in deltas)
            told.append(f"{len(deltas)} as a delta: {human_bytes(part)} of {human_bytes(whole)}")
        tail = f" ({', '.join(told)})" if told else ""
        return f"send {len(self.blobs)} files, {human_bytes(self.bytes)}{tail}"


@dataclass(frozen=True)
class StageRelease(Action):
    """Make the release folder of links beside the live one."""

    no_undo = "the staged release is not in use; the next deploy removes it"
    manifest: Manifest

    def describe(self) -> str:
        """`stage tiny-genie/0123456789abcdef: 14 files and env.sh`."""
        manifest, count = self.manifest, len(self.manifest.files)
        return f"stage {manifest.name}/{manifest.id}: {count} files and env.sh"


@dataclass(frozen=True)
class ProbeHealth(Action):
    """Open a real NPU session with the staged release."""

    no_undo = "the health probe changes nothing"
    manifest: Manifest

    def describe(self) -> str:
        """`open an NPU session with tiny-genie/...`; `test ...` for a run off the NPU."""
        what = "test" if self.manifest.origin.get("npu") is False else "open an NPU session with"
        return f"{what} {self.manifest.name}/{self.manifest.id}"


@dataclass(frozen=True)
class SwitchRelease(Action):
    """Point `current` to a release, in one rename."""

    no_undo = "fleet rollback (switches back)"
    name: str
    id: str
    previous: str | None = None

    def describe(self) -> str:
        """`switch current/tiny-genie: <old> -> <new>`."""
        return f"switch current/{self.name}: {self.previous or 'nothing'} -> {self.id}"


@dataclass(frozen=True)
class PruneReleases(Action):
    """Remove releases beyond the newest `keep`, never the current or the previous one."""

    no_undo = "deploy a removed release again to get it back"
    name: str
    keep: int

    def describe(self) -> str:
        """`keep the newest 3 releases of tiny-genie`."""
        return f"keep the newest {self.keep} releases of {self.name}"


@dataclass(frozen=True)
class DevicePlan:
    """What deploy would do on one device. Refused when a finding refuses.

    The first `system` actions are those on the system; `become` says how the login becomes
    root for them, "" where none needs it. `then` says what is run after a change.
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
        """Actions on the system of the device, in order."""
        return self.actions[: self.system]

    @property
    def release_steps(self) -> tuple[Action, ...]:
        """Actions on releases, after those on the system."""
        return self.actions[self.system :]

    @property
    def refused(self) -> bool:
        """True when nothing may be done."""
        return any(finding.refuses for finding in self.findings)

    @property
    def unchanged(self) -> bool:
        """True when the device is as the playbook wants it."""
        return not self.refused and not self.actions

    @property
    def bytes(self) -> int:
        """Payload bytes that would be sent."""
        return sum(action.bytes for action in self.actions)
