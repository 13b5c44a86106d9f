"""Actions on files, and on the programs that must read them again."""

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
    """Return the staging path of a content, by its hash so that plans are reproducible."""
    return f"{base}/staged/{hashlib.sha256(content).hexdigest()[:16]}"


def install_commands(
    source: str, path: str, mode: str, owner: str, group: str
) -> tuple[Command, ...]:
    """Return commands that put a file in place in one rename; it is old or new at any time."""
    folder, _, name = path.rpartition("/")
    new = f"{folder}/.{name}.fleet"
    return (
        argv("install", "-m", mode, "-o", owner, "-g", group, "--", source, new),
        argv("mv", "-f", "-T", "--", new, path),
    )


@dataclass(frozen=True)
class WriteFile(SystemStep):
    """An action that writes a file with mode, owner and group. `before` is the existing file."""

    file: WantedFile
    base: str
    before: FileSeen = NOT_THERE

    def describe(self) -> str:
        """Return `write /etc/udev/rules.d/60-x.rules (0644 root:root, 120 bytes)`."""
        wanted = self.file
        word = "write" if self.before.kind == "absent" else "replace"
        size = len(wanted.content)
        return f"{word} {wanted.path} ({wanted.mode} {wanted.owner}:{wanted.group}, {size} bytes)"

    def staged(self) -> Mapping[str, bytes]:
        """Return the content by its path in the folder for staged files."""
        return {staging_path(self.base, self.file.content): self.file.content}

    def commands(self) -> tuple[Command, ...]:
        """Return commands that install under a temporary name, then rename."""
        (source,) = self.staged()
        wanted = self.file
        return install_commands(source, wanted.path, wanted.mode, wanted.owner, wanted.group)

    def undo_staged(self) -> Mapping[str, bytes]:
        """Return the old content."""
        old = self.before.content
        return {} if old is None else {staging_path(self.base, old): old}

    def undo(self) -> tuple[Command, ...]:
        """Return commands that restore the old file or link, or remove the file."""
        old = self.before
        if old.kind == "link":
            return (argv("ln", "-s", "-f", "-n", "--", old.target, self.file.path),)
        if old.content is not None:
            (source,) = self.undo_staged()
            mode = old.mode.rjust(4, "0")
            return install_commands(source, self.file.path, mode, old.owner, old.group)
        return (argv("rm", "-f", "--", self.file.path),)

    def as_shell(self) -> str:
        """Return shell text that contains the content, because an administrator has no
        staged file.
        """
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
    """An action that sends files into a folder of the deploy user. Nothing is sent twice."""

    files: tuple[FileRef, ...]
    folder: str
    no_undo = "the package files are in fleet's own folder, and the next deploy deletes them"

    @property
    def bytes(self) -> int:  # type: ignore[override]
        """The payload bytes if the device has none of the files."""
        return sum(file.size for file in self.files)

    def describe(self) -> str:
        """Return `send 3 package files, 1.2 MB`."""
        return f"send {len(self.files)} package files, {human_bytes(self.bytes)}"


@dataclass(frozen=True)
class RunLdconfig(Refresh):
    """An action that adds new libraries to the loader's cache."""

    def describe(self) -> str:
        """Return `refresh the loader's cache (ldconfig)`."""
        return "refresh the loader's cache (ldconfig)"

    def commands(self) -> tuple[Command, ...]:
        """Return the command ldconfig."""
        return (argv("ldconfig"),)


def _nameless(node: DeviceNode) -> bool:
    """Return True if the owner or group was deleted, which `stat` shows as UNKNOWN."""
    return "UNKNOWN" in {node.owner, node.group}


@dataclass(frozen=True)
class ReloadUdev(SystemStep):
    """An action that reloads the rules and applies them to the existing nodes.

    `names` are kernel names or globs. `before` are the current nodes, because removing a rule does
    not restore the mode of a node. A mark below /run records until the next boot that the event
    `action` was sent. `acls` are nodes to which the rules may give an access list, `kept` those
    that already had one. The undo is not a refresh: the package with setfacl may be removed after
    it, and udevd reads rule files by itself.
    """

    names: tuple[str, ...]
    before: tuple[DeviceNode, ...] = ()
    action: str = ACTION
    acls: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    base: str = ""

    def staged(self) -> Mapping[str, bytes]:
        """Return a comment, because a new file counts as a change of the rules."""
        return {staging_path(self.base, _COMMENT): _COMMENT}

    @property
    def no_undo(self) -> str:  # type: ignore[override]
        """The changes that the undo does not revert."""
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
        """Return `apply udev rules to fastrpc-*, system`."""
        again = f", with the udev event {self.action}" * (self.action != ACTION)
        return f"apply udev rules to {', '.join(self.names)}{again}"

    def commands(self) -> tuple[Command, ...]:
        """Return commands to reload, trigger for these names, wait, and record the event.

        The first command installs a comment as a new rule file, so that udevd really reloads.
        """
        match = [f"--sysname-match={name}" for name in self.names]
        return (
            argv("install", "-D", "-m", "0644", "--", *self.staged(), ANEW),
            argv("udevadm", "control", "--reload"),
            argv("udevadm", "trigger", f"--action={self.action}", *match),
            argv("udevadm", "settle", "--timeout=30"),
            argv("touch", "--", MARK + self.action),
        )

    def as_shell(self) -> str:
        """Return shell text without a staged file."""
        (staged,) = self.staged()
        return f"echo '#' | {super().as_shell().replace(staged, '/dev/stdin')}"

    def undo(self) -> tuple[Command, ...]:
        """Return commands that restore the nodes, and reload."""
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
    """An action that links a library to its unversioned name in fleet's own folder, without root.

    `target` "" is the versioned library that the packages install.
    """

    name: str
    target: str
    base: str

    def describe(self) -> str:
        """Return `link libcdsprpc.so -> /usr/lib/.../libcdsprpc.so.1 in <base>/shim`."""
        target = self.target or "the versioned library of the packages"
        return f"link {self.name} -> {target} in {self.base}/shim"

    def undo(self) -> tuple[Command, ...]:
        """Return commands that remove the link, and the folder if it is empty."""
        shim = f"{self.base}/shim"
        return (
            argv("rm", "-f", "--", f"{shim}/{self.name}"),
            argv("rmdir", "--ignore-fail-on-non-empty", "--", shim),
        )
