"""Plain files as a release: everything a deploy has, but no runtime, runner or NPU session."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fleet.bundles.hashes import HashCache, ref
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
    cache = HashCache()
    found: dict[str, FileRef] = {}
    for source in sources:
        if not source.exists():
            raise InputError(f"there is no {source}")
        prefix = f"{source.resolve().name}/" if source.is_dir() and len(sources) > 1 else ""
        for name, path in _walk(source):
            runs = bool(path.stat().st_mode & 0o111)
            item = replace(ref(prefix + name, path, cache, hashes=True), executable=runs)
            if found.setdefault(item.name, item).sha256 != item.sha256:
                raise InputError(
                    f"two files for {item.name}: {found[item.name].source} and {path}",
                    hint="push them under different names, or as folders",
                )
    cache.save()
    if not found:
        raise InputError(f"there are no files in {', '.join(map(str, sources))}")
    return tuple(found.values())


def _walk(source: Path) -> list[tuple[str, Path]]:
    if not source.is_dir():
        return [(source.name, source)]
    found = []
    for path in sorted(source.rglob("*")):
        name = str(path.relative_to(source))
        if path.is_symlink() and not path.resolve().is_relative_to(source.resolve()):
            raise InputError(
                f"{path} is a link that leads out of {source}",
                hint="copy what it leads to, or leave it out",
            )
        if path.is_symlink() and path.is_dir():
            raise InputError(
                f"{path} is a link to a folder", hint="copy the folder there, or leave it out"
            )
        if path.is_file():
            found.append((name, path))
        elif not path.is_dir():
            raise InputError(f"{path} is no regular file", hint="leave it out")
    return found


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
