"""The backend with which a device receives blobs and makes releases; only this module chooses it.

A shell stages in one command, then switches and prunes in another; with tar it does the three in
one. A phone's shell and the device worker (Python, on POSIX and on Windows) receive blobs and steps
in one stream.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fleet.content.sources import key_of
from fleet.device.call import FSCK, STAMP, loaded, runs_worker, worker, worker_command
from fleet.device.shell import device_script, source
from fleet.model.command import Call, Command, script
from fleet.model.errors import InputError
from fleet.model.facts import Facts
from fleet.model.files import BLOCK_BYTES, FileRef, check_windows_names
from fleet.model.manifest import Manifest
from fleet.model.plain import to_plain
from fleet.model.plan import (
    Action,
    Blob,
    ProbeHealth,
    PruneReleases,
    SendBlobs,
    StageRelease,
    SwitchRelease,
)
from fleet.ops import archives
from fleet.ops.archives import Kind
from fleet.ops.batches import BLOCK
from fleet.ops.environment import OWN_PATH
from fleet.ops.frames import Source, Style, Unhashed
from fleet.ops.release import own_dir, release_dir
from fleet.ops.upload import Step, sync_mode

# A release is a folder of links into the store, with env.sh and manifest.json in another folder.


def stage_frame(base: str, manifest: Manifest, run_id: str, *, power: bool = False) -> bytes:
    """Return the stage frame for the device worker. `power` adds env.ps1.

    Call `check_names` of the backend first.
    """
    rows = [f"d\t{folder}\n" for folder in _folders(manifest)]
    rows += [f"f\t{file.sha256}\t{file.name}\n" for file in manifest.files]
    texts = _texts(base, manifest, power=power)
    parts = ["".join(rows).encode(), *(text.encode() for text in texts)]
    sizes = " ".join(str(len(part)) for part in parts)
    head = f"stage {manifest.name} {manifest.id} {run_id} {sizes}\n"
    return head.encode() + b"".join(parts)


def env_lines(manifest: Manifest, base: str) -> list[str]:
    """Return the lines of `env.sh`, which people source to start tools of the release by hand."""
    lines = [_head(manifest, base, "env.sh")]
    lines += [f"unset {name}" for name in manifest.unset]
    for name, value in _environment(manifest, base):
        lines.append(f"export {name}={shlex.quote(value)}")
    return lines


def power_lines(manifest: Manifest, base: str) -> list[str]:
    """Return the lines of `env.ps1` for PowerShell, where single-quoted text is literal."""
    lines = [_head(manifest, base, "env.ps1")]
    lines += [f"Remove-Item Env:{name} -ErrorAction SilentlyContinue" for name in manifest.unset]
    for name, value in _environment(manifest, base):
        # Each of these ends a text in single quotes. Doubled, it is literal.
        text = re.sub("(['\u2018\u2019\u201a\u201b])", r"\1\1", value)
        more = " + ';' + $env:PATH" if name == OWN_PATH else ""
        lines.append(f"$env:{'PATH' if more else name} = '{text}'{more}")
    return lines


def _head(manifest: Manifest, base: str, name: str) -> str:
    path = f"{own_dir(base, manifest.name, manifest.id)}/{name}"
    return f"# {manifest.name}/{manifest.id}, written by fleet; use with: . {path}"


def _environment(manifest: Manifest, base: str) -> Iterable[tuple[str, str]]:
    return manifest.environment(release_dir(base, manifest.name, manifest.id)).items()


def _texts(base: str, manifest: Manifest, *, power: bool = False) -> tuple[str, str]:
    """Return the texts of env.sh (with `power`: env.ps1) and of manifest.json."""
    lines = (power_lines if power else env_lines)(manifest, base)
    return "\n".join(lines) + "\n", _record(to_plain(manifest))


def _record(whole: dict[str, Any]) -> str:
    """Return JSON with a line for each file. With `indent`, Python's encoder takes 20 ms
    for 2,000.
    """
    rows = ",\n".join(json.dumps(file, sort_keys=True) for file in whole["files"])
    rest = json.dumps({**whole, "files": []}, indent=1, sort_keys=True)
    return rest.replace('"files": []', f'"files": [\n{rows}]' if rows else '"files": []', 1) + "\n"


def _folders(manifest: Manifest) -> list[str]:
    folders: set[str] = set()
    for item in manifest.files:
        folder = item.name.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return sorted(folders)


def stage_lines(base: str, manifest: Manifest) -> Iterator[bytes]:
    """Yield the input of stage.sh: folders, hash and name of files, env.sh, manifest.json."""
    env, record = _texts(base, manifest)
    for folder in _folders(manifest):
        yield f"d\t{folder}\n".encode()
    for file in manifest.files:
        yield f"f\t{file.sha256}\t{file.name}\n".encode()
    for line in env.split("\n")[:-1]:
        yield f"e\t{line}\n".encode()
    yield b"m\n" + record.encode()


def stage_archive(base: str, manifest: Manifest, kind: archives.Kind = "tar") -> bytes:
    """Return the standard input of stage_tar.sh.

    It starts no program for a link: 2,000 links take 0.1 s instead of 13 s on a lab phone.
    """
    return archives.whole(kind, _entries(base, manifest, kind))


def _entries(base: str, manifest: Manifest, kind: archives.Kind) -> Iterator[bytes]:
    env, record = _texts(base, manifest)
    listed = "".join(f"{file.sha256}\t{file.name}\n" for file in manifest.files)
    for folder in ("tree", "own", *(f"tree/{folder}" for folder in _folders(manifest))):
        yield archives.folder(kind, folder)
    for item in manifest.files:
        yield archives.link(kind, f"tree/{item.name}", f"{base}/store/{item.sha256}")
    texts = {"files": listed, "own/env.sh": env, "own/manifest.json": record, "end": ""}
    for name, text in texts.items():
        yield archives.file(kind, name, text.encode())


NAMES: dict[type[Action], str] = {
    SendBlobs: "send",
    StageRelease: "stage",
    ProbeHealth: "health",
    SwitchRelease: "switch",
    PruneReleases: "prune",
}


@dataclass(frozen=True)
class StoreRequest:
    """A command and its standard input."""

    command: Command
    stdin: Iterable[bytes] = ()


@dataclass(frozen=True)
class ReleaseTurn:
    """The work of one command: `blobs`, then `steps`.

    The steps run by `order` if that is a separate command, else in the stream of the blobs. With
    `probe` the turn only checks the health of that release. `name` is the name of its first action,
    `says` describes the transfer or the probe.
    """

    name: str
    says: str = ""
    bytes: int = 0
    blobs: tuple[Blob, ...] = ()
    steps: tuple[Step, ...] = ()
    order: StoreRequest | None = None
    probe: Manifest | None = None


class ReleaseBackend:
    """The backend for a POSIX shell with the tools in the facts. Subclasses override parts
    of it.
    """

    power = False  # a release has env.ps1 instead of env.sh

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.tools = facts.tools

    @property
    def worker(self) -> bytes | None:
        """The program text that precedes a stream for the device worker, None without one."""
        return None

    @property
    def hashes(self) -> bool:
        """True if the device hashes what it receives. Otherwise the data is read back."""
        return bool(self.tools.sha256)

    @property
    def frames(self) -> bool:
        """True if one stream can contain many blobs: dd can count the bytes of a pipe."""
        return self.tools.dd_fullblock

    @property
    def batches(self) -> bool:
        """True if small blobs can be batched: tar, and a hash tool that prints `<hash>  <name>`."""
        tool = self.tools.sha256
        return bool(tool) and tool[0] != "openssl" and self.tools.tar and self.frames

    @property
    def archive(self) -> Kind:
        """The archive format that the device unpacks fastest."""
        return "cpio" if self.tools.cpio else "tar"

    @property
    def one_stream(self) -> bool:
        """True if stage, switch and prune follow the blobs in one stream.

        A phone accepts commands of 64 KiB; an ssh server may refuse 9 KiB (fleet/facts/gather.py).
        """
        return self.frames and self.tools.cpio

    @property
    def late(self) -> bool:
        """True if the device accepts a blob with its hash at the end."""
        return self.hashes and self.frames

    def style(self, source: Source, unhashed: Mapping[str, Unhashed]) -> Style:
        """Return the style in which blobs from `source` are sent."""
        return Style(
            self.batches, self.worker, archive=self.archive, unhashed=unhashed, source=source
        )

    def check_names(self, manifest: Manifest) -> None:
        """Raise InputError for a file name that the device cannot have."""
        for item in manifest.files:
            if "\t" in item.name:
                text = f"the file name {item.name!r} contains a tab"
                raise InputError(text, hint="rename the file")

    def fsck(self, args: Sequence[str], shas: bytes) -> StoreRequest:
        """Return the request that checks the whole store with fsck.sh; `shas` is its input."""
        return StoreRequest(device_script("fsck", *args, *self.tools.sha256), [shas])

    def receive(self, *, single: bool = False, steps: bool = False) -> Command:
        """Return the command that receives blobs and `steps` from standard input.

        `single` is for a device whose dd cannot count the bytes of a pipe.
        """
        framing = "single" if single else "framed"
        args = (self.facts.base_dir, framing, sync_mode(self.facts), *self.tools.sha256)
        if not steps:
            return device_script("receive", *args)
        texts = {"stage": "stage_tar", "switch": "switch", "prune": "prune"}
        functions = (f"{step}() (\n{source(program)})\n" for step, program in texts.items())
        return script("".join(functions) + source("receive"), *args)

    def state(self, manifest: Manifest, *, verify: bool = False) -> StoreRequest:
        """Return the request for the state of `manifest`. `verify` hashes every blob on the
        device.
        """
        how = "hash" if verify and self.hashes else "size"
        rows = (
            f"{file.sha256}\t{file.size}\t{key_of(file) or '-'}\t{file.name}\n"
            for file in manifest.files
        )
        return self._ask("state", manifest.name, manifest.id, how, rows=rows)

    def stamped(self, manifest: Manifest) -> StoreRequest | None:
        """Return the request whether everything is as at the switch, None if not supported."""
        del manifest
        return None

    def speculative(self, name: str, files: Iterable[FileRef]) -> StoreRequest:
        """Return the request which files cannot exist there.

        Their sha256 is a name for their state.
        """
        rows = (f"{file.sha256}\t{file.size}\t{file.name}\n" for file in files)
        return self._ask("ahead", name, rows=rows)

    def sign(self, sha: str) -> StoreRequest | None:
        """Return the request for the signature of a stored blob, None if not supported."""
        del sha
        return None

    def turns(self, actions: Sequence[Action], run_id: str) -> list[ReleaseTurn]:
        """Return the release actions of a plan in as few commands as the device allows.

        Raises InputError for a file name with a tab.
        """
        groups: list[list[Action]] = []
        for action in actions:
            if isinstance(action, StageRelease):
                ReleaseBackend.check_names(self, action.manifest)
            if groups and self._joins(groups[-1][-1], action):
                groups[-1].append(action)
            else:
                groups.append([action])
        return [self._turn(group, run_id) for group in groups]

    def _turn(self, actions: Sequence[Action], run_id: str) -> ReleaseTurn:
        first = actions[0]
        name, says = NAMES[type(first)], first.describe()
        if isinstance(first, ProbeHealth):
            return ReleaseTurn(name, says, probe=first.manifest)
        behind = actions[1:] if isinstance(first, SendBlobs) else actions
        staged = [action.manifest for action in actions if isinstance(action, StageRelease)]
        blobs = len(staged[0].blobs) if staged else 0
        steps = tuple(
            Step(NAMES[type(action)], action.describe, partial(self._frame, action, run_id, blobs))
            for action in behind
        )
        if isinstance(first, SendBlobs):
            return ReleaseTurn(name, says, first.bytes, first.blobs, steps)
        order = None if self.one_stream else self._order(actions, run_id)
        return ReleaseTurn(name, steps=steps, order=order)

    def _joins(self, before: Action, action: Action) -> bool:
        """Return True if an action can follow another one in the same command.

        A truncated archive is detected by its end; nothing may follow other input.
        """
        if isinstance(before, ProbeHealth) or isinstance(action, ProbeHealth):
            return False
        if self.one_stream:
            return True
        if isinstance(before, SendBlobs):
            return False
        return self.tools.tar or not isinstance(before, StageRelease)

    def _order(self, actions: Sequence[Action], run_id: str) -> StoreRequest:
        """Return one command in which each step starts after the success of the previous one.

        A failure after the line `switched` is one of pruning.
        """
        stdin: Iterable[bytes] = ()
        name, release_id, keep, texts = "", "", "", []
        for action in actions:
            program, again = NAMES[type(action)], ""
            match action:
                case StageRelease():
                    name, release_id = action.manifest.name, action.manifest.id
                    base = self.facts.base_dir
                    if self.tools.tar:
                        program, stdin = "stage_tar", [stage_archive(base, action.manifest)]
                    else:
                        stdin = stage_lines(base, action.manifest)
                case SwitchRelease():
                    name, release_id = action.name, action.id
                case PruneReleases():
                    name, keep, again = action.name, str(action.keep), 'set -- "$1" "$2" "$5"\n'
            texts.append(again + source(program))
        text = "".join(f"(\n{part}) || exit\n" for part in texts[:-1]) + texts[-1]
        command = script(text, self.facts.base_dir, name, release_id, run_id, keep)
        return StoreRequest(command, stdin)

    def _frame(self, action: Action, run_id: str, blobs: int) -> bytes:
        """Return the frame of a step; `blobs` is the number of blobs in the same stream."""
        match action:
            case StageRelease() if self.worker is None:
                manifest = action.manifest
                data = stage_archive(self.facts.base_dir, manifest, self.archive)
                blocks, rest = divmod(len(data), BLOCK)
                words = (manifest.name, manifest.id, run_id, blocks, rest, self.archive)
                return " ".join(map(str, ("stage", *words))).encode() + b"\n" + data
            case StageRelease():
                base = self.facts.base_dir
                return stage_frame(base, action.manifest, run_id, power=self.power)
            case SwitchRelease():
                return f"switch {action.name} {action.id} {run_id}\n".encode()
            case PruneReleases():
                known = f" {blobs}" if blobs and self.worker is None else ""
                return f"prune {action.name} {action.keep}{known}\n".encode()
        raise NotImplementedError(type(action).__name__)

    def _ask(self, name: str, *args: str, rows: Iterable[str]) -> StoreRequest:
        tool = self.tools.sha256 if name == "state" else ()
        command = device_script(name, self.facts.base_dir, *args, *tool)
        return StoreRequest(command, ["".join(rows).encode()])


class DeviceWorker(ReleaseBackend):
    """The device worker in Python, which receives blobs and steps in one stream."""

    hashes = frames = batches = one_stream = True

    def _command(self, name: str, *args: str) -> Command:
        return worker_command(self.facts, name, self.facts.base_dir, *args)

    def _ask(self, name: str, *args: str, rows: Iterable[str]) -> StoreRequest:
        head = self.worker or b""
        return StoreRequest(self._command(name, *args), [head + "".join(rows).encode()])

    def receive(self, *, single: bool = False, steps: bool = False) -> Command:
        """Return the command that receives the stream. The worker ignores both flags."""
        del single, steps
        return self._command("receive")


class PosixWorker(DeviceWorker):
    """The device worker next to a POSIX shell. It also makes patches, recycles and stamps."""

    late = True

    @property
    def worker(self) -> bytes | None:
        """The text of the worker."""
        return worker()

    def fsck(self, args: Sequence[str], shas: bytes) -> StoreRequest:
        """Return the request that checks the whole store with a Python program."""
        return StoreRequest(worker_command(self.facts, *args), [loaded(FSCK) + shas])

    def stamped(self, manifest: Manifest) -> StoreRequest | None:
        """Return the request for the stamp. GNU find takes a third of the time of the program."""
        args = (self.facts.base_dir, manifest.name, manifest.id)
        if self.tools.find_printf:
            return StoreRequest(device_script("stamp", *args))
        return StoreRequest(worker_command(self.facts, *args), [loaded(STAMP)])

    def sign(self, sha: str) -> StoreRequest | None:
        """Return the request for the signature of a stored blob."""
        path = f"{self.facts.base_dir}/store/{sha}"
        return StoreRequest(worker_command(self.facts, "sign", path, str(BLOCK_BYTES)), [worker()])


class WindowsWorker(DeviceWorker):
    """The device worker on a Windows PC, where the transport sends the program for a call."""

    late = False
    power = True
    worker = b""

    def check_names(self, manifest: Manifest) -> None:
        """Raise InputError for a name that Windows cannot have either."""
        super().check_names(manifest)
        check_windows_names(item.name for item in manifest.files)

    def fsck(self, args: Sequence[str], shas: bytes) -> StoreRequest:
        """Return the request that checks the whole store by a call of board.py."""
        return StoreRequest(Command(("python3",), call=Call("fsck", tuple(args))), [shas])

    def _command(self, name: str, *args: str) -> Command:
        return Command(("python3",), call=Call(name, (self.facts.base_dir, *args)))


def backend_for(facts: Facts) -> ReleaseBackend:
    """Return the backend for a device."""
    if facts.windows is not None:
        return WindowsWorker(facts)
    return PosixWorker(facts) if runs_worker(facts) else ReleaseBackend(facts)
