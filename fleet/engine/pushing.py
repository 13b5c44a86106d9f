"""Plain files as a release: everything a deploy has, but no runtime, runner or NPU session."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fleet.bundles.hashes import HashCache
from fleet.bundles.trees import TreeHashes
from fleet.engine.leasing import Lease
from fleet.engine.pool import DeviceResult, on_every_device
from fleet.engine.records import new_run_id
from fleet.engine.releasing import apply_plan
from fleet.engine.session import Session
from fleet.engine.states import Look, facts_of, look_at, take_and_look
from fleet.engine.transfer.depot import Depot, Pace
from fleet.engine.transfer.known import remember, remembered
from fleet.model.errors import DiskFullError, InputError
from fleet.model.events import Listener
from fleet.model.facts import Facts
from fleet.model.files import FileRef, human_bytes
from fleet.model.inventory import Host
from fleet.model.manifest import Manifest
from fleet.model.plan import DevicePlan, SendBlobs

KEEP = 2
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # as of playbooks
MARGIN_BYTES = 16 << 20


@dataclass(frozen=True)
class PushOptions:
    """How to go about it; as in fleet.engine.operation.Options."""

    verify: bool = False
    accept_new: bool = False
    parallel: int = 16
    keep: int = KEEP
    pace: Pace = field(default_factory=Pace)


class Push:
    """Files that become `<base>/current/<name>/` on every host."""

    def __init__(
        self,
        name: str,
        sources: Sequence[Path],
        hosts: Sequence[Host],
        listener: Listener,
        options: PushOptions | None = None,
    ) -> None:
        """Raises InputError for a source that is not there or cannot be sent."""
        self.options = options or PushOptions()
        self.hosts = tuple(hosts)
        if not _NAME.fullmatch(name):
            raise InputError(f"'{name}' cannot be the name of a release", hint="give --name")
        self.manifest = Manifest(name, files_of(sources), origin={"kind": "files"})
        self.run_id = new_run_id()
        self.depot = Depot(self.options.pace)
        self._listener = listener

    def push(self) -> list[DeviceResult]:
        """Bring them; a device that has them all is left alone."""
        return on_every_device(
            self.hosts,
            self._push,
            self._listener,
            parallel=self.options.parallel,
            accept_new=self.options.accept_new,
            depot=self.depot,
        )

    def _push(self, session: Session, result: DeviceResult) -> None:
        """One round trip to a device that is known and has everything."""
        verify, keep = self.options.verify, self.options.keep
        known = None if verify else remembered(session)
        seen = look_at(session, known, self.manifest, keep) if known else None
        if known and seen and seen.state.sealed and not seen.actions:
            self._done(result, self._plan(session, known, seen))
            return
        facts = facts_of(session)
        with Lease(session, f"push {self.manifest.name}", self.run_id):
            if seen is None or known is None or known.base_dir != facts.base_dir:
                seen = look_at(session, facts, self.manifest, keep, verify=verify)
            if seen.actions:
                seen = take_and_look(seen, session, facts, self.manifest, keep, verify=verify)
            plan = result.plan = self._plan(session, facts, seen)
            _room(plan)
            apply_plan(session, plan, self.run_id)
        self._done(result, plan)
        remember(session, facts)

    def _done(self, result: DeviceResult, plan: DevicePlan) -> None:
        result.plan = plan
        result.outcome = "changed" if plan.actions else "unchanged"
        result.text = f"release {self.manifest.id}"

    def _plan(self, session: Session, facts: Facts, seen: Look) -> DevicePlan:
        return DevicePlan(
            host=session.host,
            facts=facts,
            target="",
            manifest=self.manifest,
            actions=seen.actions,
            current=seen.state.current,
        )


def files_of(sources: Sequence[Path]) -> tuple[FileRef, ...]:
    """Files as they are named, folders with all that is in them. Raises InputError.

    A file has its own name in the release; of one folder its content, of several each under
    its name.
    """
    found: dict[str, FileRef] = {}
    cache = HashCache()
    try:
        for source in sources:
            for item in _files(source, cache, alone=len(sources) == 1):
                if found.setdefault(item.name, item).sha256 != item.sha256:
                    raise InputError(
                        f"two files for {item.name}: {found[item.name].source} and {item.source}",
                        hint="push them under different names, or as folders",
                    )
    except OSError as error:
        raise InputError(
            f"cannot read {error.filename or 'a source'}: {error.strerror}",
            hint="check its rights, or leave it out",
        ) from error
    cache.save()
    if not found:
        raise InputError(f"there are no files in {', '.join(map(str, sources))}")
    return tuple(found.values())


def _files(source: Path, cache: HashCache, *, alone: bool) -> Iterator[FileRef]:
    if not source.exists():
        raise InputError(f"there is no {source}")
    if source.is_file():
        file = source.stat()
        runs = bool(file.st_mode & 0o111)
        yield FileRef(source, source.name, file.st_size, cache.sha256(source), runs)
        return
    if not source.is_dir():
        raise _odd(source)
    tree = TreeHashes(source, cache)
    prefix = "" if alone else f"{source.resolve().name}/"
    for name, where, file in _walk(source, str(source), ""):
        path = Path(where)
        sha256 = tree.sha256(name, path, file)
        yield FileRef(path, prefix + name, file.st_size, sha256, bool(file.st_mode & 0o111))
    tree.save()


def _walk(top: Path, folder: str, prefix: str) -> Iterator[tuple[str, str, os.stat_result]]:
    """Name, path and state of every file, by name; 2,000 in 10 ms, where pathlib takes 60."""
    with os.scandir(folder) as entries:
        inside = sorted(entries, key=lambda one: one.name)
    for one in inside:
        name = prefix + one.name
        if one.is_symlink():
            yield name, one.path, _led_to(top, Path(one.path))
        elif one.is_dir():
            yield from _walk(top, one.path, f"{name}/")
        elif one.is_file():
            yield name, one.path, one.stat()
        else:
            raise _odd(Path(one.path))


def _led_to(top: Path, link: Path) -> os.stat_result:
    """The state of the file that a link of the folder `top` leads to."""
    try:
        stays = link.resolve().is_relative_to(top.resolve())
    except RuntimeError:  # it leads to itself
        raise _odd(link) from None
    if not stays:
        raise InputError(
            f"{link} is a link that leads out of {top}",
            hint="copy what it leads to, or leave it out",
        )
    if link.is_dir():
        raise InputError(
            f"{link} is a link to a folder", hint="copy the folder there, or leave it out"
        )
    if not link.is_file():
        raise _odd(link)
    return link.stat()


def _odd(path: Path) -> InputError:
    return InputError(f"{path} is no regular file", hint="leave it out")


def _room(plan: DevicePlan) -> None:
    need = sum(one.room for one in plan.actions if isinstance(one, SendBlobs))
    disk = plan.facts.disk
    have = disk.available_bytes
    if need and have is not None and have < need + MARGIN_BYTES:
        raise DiskFullError(
            f"{disk.path}: needed {human_bytes(need)}, {human_bytes(have)} are available",
            device=plan.host.name,
            hint=f"free space on {disk.mount or disk.path}, or set base_dir in the inventory",
        )
