"""Actions on files, and on what has to read them again."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from fleet.model.command import Command
from fleet.model.facts import DeviceNode
from fleet.model.files import FileRef, human_bytes
from fleet.model.plan import Action
from fleet.model.system import FileSeen, WantedFile
from fleet.ops.system.access import ACL, ACTION, ANEW, MARK
from fleet.ops.system.step import Refresh, SystemStep, argv

NOT_THERE = FileSeen()
_HERE = "FLEET_END_OF_FILE"
_COMMENT = b"# Written by fleet, so that udevd reads its rules anew.\n"


def staging_path(base: str, content: bytes) -> str:
    """Where content waits on the device; by its hash, so that a plan is always the same."""
    return f"{base}/staged/{hashlib.sha256(content).hexdigest()[:16]}"


def install_commands(
    source: str, path: str, mode: str, owner: str, group: str
) -> tuple[Command, ...]:
    """A file in place in one rename; old or new at every instant."""
    folder, _, name = path.rpartition("/")
    new = f"{folder}/.{name}.fleet"
    return (
        argv("install", "-m", mode, "-o", owner, "-g", group, "--", source, new),
        argv("mv", "-f", "-T", "--", new, path),
    )


@dataclass(frozen=True)
class WriteFile(SystemStep):
    """Write a file with mode, owner and group. `before` is what is there now."""

    file: WantedFile
    base: str
    before: FileSeen = NOT_THERE

    def describe(self) -> str:
        """`write /etc/udev/rules.d/60-x.rules (0644 root:root, 120 bytes)`."""
        wanted = self.file
        word = "write" if self.before.kind == "absent" else "replace"
        size = len(wanted.content)
        return f"{word} {wanted.path} ({wanted.mode} {wanted.owner}:{wanted.group}, {size} bytes)"

    def staged(self) -> Mapping[str, bytes]:
        """The content."""
        return {staging_path(self.base, self.file.content): self.file.content}

    def commands(self) -> tuple[Command, ...]:
        """Install under a temporary name, then rename."""
        (source,) = self.staged()
        wanted = self.file
        return install_commands(source, wanted.path, wanted.mode, wanted.owner, wanted.group)

    def undo_staged(self) -> Mapping[str, bytes]:
        """What was there before."""
        old = self.before.content
        return {} if old is None else {staging_path(self.base, old): old}

    def undo(self) -> tuple[Command, ...]:
        """The file, link or nothing that was there."""
        old = self.before
        if old.kind == "link":
            return (argv("ln", "-s", "-f", "-n", "--", old.target, self.file.path),)
        if old.content is not None:
            (source,) = self.undo_staged()
            mode = old.mode.rjust(4, "0")
            return install_commands(source, self.file.path, mode, old.owner, old.group)
        return (argv("rm", "-f", "--", self.file.path),)

    def as_shell(self) -> str:
        """The content stands in the text; an administrator has no staged file."""
        wanted = self.file
        first, second = install_commands(
            "/dev/stdin", wanted.path, wanted.mode, wanted.owner, wanted.group
        )
        text = wanted.content.decode("utf-8", "replace")
        plain = text.encode() == wanted.content and text.endswith("\n") and _HERE not in text
        if plain and "\r" not in text and "\0" not in text:
            head = f"{shlex.join(first.argv)} <<'{_HERE}'\n{text}{_HERE}"
        else:
            coded = base64.b64encode(wanted.content).decode()
            head = f"printf %s {coded} | base64 -d | {shlex.join(first.argv)}"
        return f"{head}\n{shlex.join(second.argv)}"


@dataclass(frozen=True)
class PlaceFiles(Action):
    """Send files into a folder of the deploy user, under their names; nothing is sent twice."""

    files: tuple[FileRef, ...]
    folder: str
    no_undo = "the package files are in fleet's own folder, and the next deploy deletes them"

    @property
    def bytes(self) -> int:  # type: ignore[override]
        """Payload, when the device has none of them."""
        return sum(file.size for file in self.files)

    def describe(self) -> str:
        """`send 3 package files, 1.2 MB`."""
        return f"send {len(self.files)} package files, {human_bytes(self.bytes)}"


@dataclass(frozen=True)
class RunLdconfig(Refresh):
    """Let the loader's cache know new libraries."""

    def describe(self) -> str:
        """`refresh the loader's cache`."""
        return "refresh the loader's cache (ldconfig)"

    def commands(self) -> tuple[Command, ...]:
        """ldconfig."""
        return (argv("ldconfig"),)


def _nameless(node: DeviceNode) -> bool:
    """Does it belong to a user or group that was deleted? So `stat` calls one without a name."""
    return "UNKNOWN" in {node.owner, node.group}


@dataclass(frozen=True)
class ReloadUdev(SystemStep):
    """Read the rules anew and apply them to the nodes that are there.

    `names` are kernel names or globs; `before` the nodes as they are now: a rule that is
    gone does not give a node its old mode back. A mark below /run says until the next boot
    that the event `action` was made. `acls` are nodes to which the rules may give an access
    list, `kept` those that had one before. The undo is no refresh: the package that brings
    setfacl may go after it, and udevd reads rule files anew by itself.
    """

    names: tuple[str, ...]
    before: tuple[DeviceNode, ...] = ()
    action: str = ACTION
    acls: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    base: str = ""

    def staged(self) -> Mapping[str, bytes]:
        """A comment, whose file is a change of the rules."""
        return {staging_path(self.base, _COMMENT): _COMMENT}

    @property
    def no_undo(self) -> str:  # type: ignore[override]
        """What the undo leaves."""
        what = {
            ACL: self.kept,
            "owner": tuple(n.path for n in self.before if _nameless(n)),
        }
        return "; ".join(
            f"fleet does not restore the {name} of {', '.join(paths)}, which the udev rules set"
            for name, paths in what.items()
            if paths
        )

    def describe(self) -> str:
        """`apply udev rules to fastrpc-*, system`."""
        again = f", with the udev event {self.action}" * (self.action != ACTION)
        return f"apply udev rules to {', '.join(self.names)}{again}"

    def commands(self) -> tuple[Command, ...]:
        """Reload, trigger for those names, wait until they are handled, note it."""
        match = [f"--sysname-match={name}" for name in self.names]
        return (
            argv("install", "-D", "-m", "0644", "--", *self.staged(), ANEW),
            argv("udevadm", "control", "--reload"),
            argv("udevadm", "trigger", f"--action={self.action}", *match),
            argv("udevadm", "settle", "--timeout=30"),
            argv("touch", "--", MARK + self.action),
        )

    def as_shell(self) -> str:
        """Without a staged file."""
        (staged,) = self.staged()
        return f"echo '#' | {super().as_shell().replace(staged, '/dev/stdin')}"

    def undo(self) -> tuple[Command, ...]:
        """Give the nodes what they had, and reload."""
        back = [argv("setfacl", "-b", "--", path) for path in self.acls]
        for node in self.before:
            if node.exists and node.mode and node.owner and node.group:
                if not _nameless(node):
                    back.append(argv("chown", "--", f"{node.owner}:{node.group}", node.path))
                back.append(argv("chmod", "--", node.mode.rjust(4, "0"), node.path))
        tidy = argv("rm", "-f", "--", MARK + self.action, ANEW)
        return (*back, tidy, argv("udevadm", "control", "--reload"))


@dataclass(frozen=True)
class LinkLibrary(Action):
    """A library under its unversioned name, in fleet's own folder: no root, nothing in /usr.

    `target` "" stands for the versioned library that the packages bring.
    """

    name: str
    target: str
    base: str

    def describe(self) -> str:
        """`link libcdsprpc.so -> /usr/lib/.../libcdsprpc.so.1 in <base>/shim`."""
        target = self.target or "the versioned library of the packages"
        return f"link {self.name} -> {target} in {self.base}/shim"

    def undo(self) -> tuple[Command, ...]:
        """Remove the link; the folder goes when it is empty."""
        shim = f"{self.base}/shim"
        return (
            argv("rm", "-f", "--", f"{shim}/{self.name}"),
            argv("rmdir", "--ignore-fail-on-non-empty", "--", shim),
        )
