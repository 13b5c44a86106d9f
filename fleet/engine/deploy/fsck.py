"""Devices checked to the last byte: what lies is put aside, what can be is put right."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from msgspec import structs

from fleet.content.hashes import HashCache
from fleet.device.shell import AfterMark, device_script, failed
from fleet.engine.deploy.switch import carry_out
from fleet.engine.lease.lease import Lease, LeasedStall
from fleet.engine.pool import DeviceResult, PoolOptions, Work, on_every_device
from fleet.engine.session import Session
from fleet.engine.states import facts_of
from fleet.engine.transfer.context import TransferContext, TransferOptions
from fleet.model.deadline import Stall
from fleet.model.errors import InputError, TransferError
from fleet.model.events import Listener, Progress, StepStarted
from fleet.model.facts import Facts
from fleet.model.files import human_bytes, sha256_file
from fleet.model.inventory import Host
from fleet.model.manifest import Manifest
from fleet.model.plain import to_plain
from fleet.model.plan import Action, Blob, SendBlobs, StageRelease, SwitchRelease
from fleet.ops.backend import backend_for
from fleet.ops.fsck import Contents, Damage, StoredRelease, ask, damages, passed_word, with_cure
from fleet.profiles.runs import new_run_id
from fleet.runtimes.catalog import Catalog

# Putting right what fsck found: contents that are still somewhere, links, what is live.

SILENT_SECONDS = 120.0


@dataclass
class Held:
    """Contents that this workstation can send, by SHA-256: files of the runtime store, large ones
    that were deployed before, files below `given`, and what other boards sent (`fetched`).
    """

    given: Sequence[Path] = ()
    fetched: dict[str, Path] = field(default_factory=dict)

    def find(self, wanted: Mapping[str, int]) -> dict[str, Path]:
        """Of sha256 → bytes, those that are here, each hashed anew."""
        found = {sha: path for sha, path in self.fetched.items() if sha in wanted}
        cache = HashCache()
        for sha in wanted:
            known = None if sha in found else cache.holding(sha)
            if known is not None and _holds(known, sha):
                found[sha] = known
        places = [
            (library.sha256, runtime.root / library.path)
            for runtime in Catalog().list()
            for library in runtime.libraries
        ]
        for sha, path in places:
            if sha in wanted and sha not in found and _holds(path, sha):
                found[sha] = path
        sizes = {size for sha, size in wanted.items() if sha not in found}
        for path in _files(self.given) if sizes else ():
            if path.stat().st_size in sizes:
                sha = sha256_file(path)
                found |= {sha: path} if sha in wanted else {}
        return found


def _holds(path: Path, sha: str) -> bool:
    try:
        return sha256_file(path) == sha
    except OSError:
        return False


def _files(given: Iterable[Path]) -> list[Path]:
    """All below them. Raises InputError for what is not there."""
    found: list[Path] = []
    for place in given:
        if not place.exists():
            raise InputError(f"{place} does not exist", hint="give --source FILE_OR_FOLDER")
        below = place.rglob("*") if place.is_dir() else [place]
        found += [path for path in below if path.is_file()]
    return found


def fetch(session: Session, base: str, shas: Iterable[str], folder: Path) -> dict[str, Path]:
    """Blobs of a board as files here; what comes with another hash is left out."""
    return {sha: folder / sha for sha in shas if _fetched(session, base, sha, folder / sha)}


def _fetched(session: Session, base: str, sha: str, path: Path) -> bool:
    digest = hashlib.sha256()
    with path.open("wb") as stream:

        def keep(chunk: bytes) -> None:
            stream.write(chunk)
            digest.update(chunk)

        command = device_script("show", f"{base}/store/{sha}")
        session.run(command, "fetch", deadline=Stall(SILENT_SECONDS), on_stdout=AfterMark(keep))
    return digest.hexdigest() == sha


@dataclass(frozen=True)
class Repair:
    """On one device, under its lease. `manifests`: intact ones, by `<name>/<id>`, of any board."""

    session: Session
    facts: Facts
    manifests: Mapping[str, Manifest]
    sources: Mapping[str, Path]
    run_id: str

    def mend(self, found: Contents) -> None:
        """What can be; `found` is what is there now, liars put aside."""
        base = self.facts.base_dir
        hurt = {damage.release for damage in damages(found, base, hashed=False)}
        have = dict(found.blobs)
        for release in found.releases.values():
            manifest = release.manifest or self.manifests.get(release.label)
            if manifest is not None and release.label in hurt:
                self._release(release, manifest, found, have)
        for name in hurt & {*found.current, *found.history}:
            now = found.current.get(name, "")
            target = now if f"{name}/{now}" in found.releases else _last(found, name)
            manifest = self.manifests.get(f"{name}/{target}")
            if manifest and all(have.get(sha) == item.size for sha, item in manifest.blobs.items()):
                self._carry(manifest, [SwitchRelease(name, target, now)])

    def _release(
        self, release: StoredRelease, manifest: Manifest, found: Contents, have: dict[str, int]
    ) -> None:
        """Its contents as far as they are here; its links where all of them are there then."""
        lacking = [item for sha, item in manifest.blobs.items() if have.get(sha) != item.size]
        sent = [
            replace(item, source=self.sources[item.sha256])
            for item in lacking
            if item.sha256 in self.sources
        ]
        if sent:
            part = structs.replace(manifest, files=tuple(sent), stored_id=release.id)
            if not self._carry(part, [SendBlobs(tuple(Blob(item) for item in sent))]):
                return
            have.update({item.sha256: item.size for item in sent})
        if len(sent) == len(lacking):
            steps: list[Action] = [StageRelease(manifest)]
            if found.current.get(release.name) == release.id:
                steps.append(SwitchRelease(release.name, release.id, release.id))
            self._carry(manifest, steps)

    def _carry(self, manifest: Manifest, steps: Sequence[Action]) -> bool:
        try:
            carry_out(self.session, self.facts, manifest, steps, self.run_id)
        except (InputError, TransferError) as error:
            self.session.warn(error.message)
            return False
        return True


def _last(found: Contents, name: str) -> str:
    """The newest release of the history that is there."""
    past = reversed(found.history.get(name, []))
    return next((entry for entry in past if f"{name}/{entry}" in found.releases), "")


def unhashed_why(facts: Facts) -> str:
    """Why a device cannot hash its store; "" where it can."""
    able = bool(facts.tools.sha256) or backend_for(facts).hashes
    return (
        ""
        if able
        else (
            "fleet could not check the contents of files: the device has no sha256 tool "
            "and no Python"
        )
    )


@dataclass(frozen=True)
class FsckOptions:
    """`bandwidth` in bytes a second that each device reads of its store. `sources`: files and
    folders that contents for a repair may be in, besides what is known here.
    """

    repair: bool = False
    bandwidth: float | None = None
    sources: Sequence[Path] = ()
    parallel: int = 16
    accept_new: bool = False


@dataclass(frozen=True)
class FsckReport:
    """What a check found on one device: the damages that are left, and those that it repaired.

    `blobs` and `bytes` count what was hashed.
    """

    damages: tuple[Damage, ...]
    repaired: tuple[Damage, ...]
    blobs: int
    bytes: int
    base_dir: str
    emulated: bool
    PLAIN: ClassVar[str] = "damages=both blobs bytes base_dir emulated"

    @property
    def both(self) -> list[dict[str, object]]:
        """All damages; each says whether it is repaired."""
        sides = ((self.damages, False), (self.repaired, True))
        return [to_plain(damage) | {"repaired": done} for side, done in sides for damage in side]


@dataclass
class Seen:
    """What a look found on a device: facts, contents, what is wrong; then what stays wrong."""

    facts: Facts
    contents: Contents
    found: list[Damage]
    left: list[Damage] = field(default_factory=list)

    @property
    def manifests(self) -> dict[str, Manifest]:
        """Of its releases, those that are intact."""
        every = self.contents.releases.items()
        return {label: release.manifest for label, release in every if release.manifest}


class Fsck:
    """All devices are looked at; then, where that was asked for, mended: one may help another."""

    def __init__(
        self, hosts: Sequence[Host], listener: Listener, options: FsckOptions | None = None
    ) -> None:
        self.hosts, self.options = tuple(hosts), options or FsckOptions()
        self.run_id = new_run_id()
        self.seen: dict[str, Seen] = {}
        self._listener = listener
        self._held = Held(self.options.sources)
        self._sources: dict[str, Path] = {}
        self._manifests: dict[str, Manifest] = {}

    def run(self) -> list[DeviceResult[FsckReport]]:
        """Check every device; with `repair`, mend the damaged ones."""
        results = self._everywhere(self._look, self.hosts)
        hurt = [
            host for host in self.hosts if host.name in self.seen and self.seen[host.name].found
        ]
        if not self.options.repair or not hurt:
            return results
        for seen in self.seen.values():
            self._manifests |= seen.manifests
        with tempfile.TemporaryDirectory(prefix="fleet-fsck-") as folder:
            self._find(hurt, Path(folder))
            mended = {result.host.name: result for result in self._everywhere(self._mend, hurt)}
        return [mended.get(result.host.name, result) for result in results]

    def _everywhere(
        self, work: Work[FsckReport], hosts: Sequence[Host]
    ) -> list[DeviceResult[FsckReport]]:
        options = PoolOptions[FsckReport](
            parallel=self.options.parallel,
            accept_new=self.options.accept_new,
            transfer=TransferContext(TransferOptions(bandwidth=self.options.bandwidth)),
        )
        return on_every_device(hosts, work, self._listener, options)

    def _look(self, session: Session, result: DeviceResult[FsckReport]) -> None:
        facts = facts_of(session)
        contents = self._ask(session, facts, "look")
        seen = Seen(facts, contents, [])
        hashed = not unhashed_why(facts)
        seen.found = damages(contents, facts.base_dir, hashed=hashed)
        self.seen[session.host.name] = seen
        lying = contents.lying if hashed else []
        if seen.found and not self.options.repair:
            if lying:
                with Lease(session, "fsck", self.run_id):
                    self._ask(session, facts, "aside", shas=lying)
            self._again(session, seen)
        seen.left = seen.found
        self._tell(session, result, seen)

    def _again(self, session: Session, seen: Seen) -> None:
        """Another deploy may have been at it meanwhile: what it has put right is no damage."""
        now = damages(self._ask(session, seen.facts, "list"), seen.facts.base_dir, hashed=False)
        still = {damage.place for damage in now}
        seen.found = [
            damage for damage in seen.found if damage.place in still or not damage.release
        ]

    def _find(self, hurt: Sequence[Host], folder: Path) -> None:
        """The contents that lack somewhere: here, else on a board that has them intact."""
        wanted: dict[str, int] = {}
        for host in hurt:
            wanted |= self._lacking(self.seen[host.name])
        self._sources = self._held.find(wanted)
        donors: dict[str, list[str]] = {}
        for sha in wanted.keys() - self._sources.keys():
            for host in self.hosts:
                seen = self.seen.get(host.name)
                if seen is not None and seen.contents.hashes.get(sha) == sha:
                    donors.setdefault(host.name, []).append(sha)
                    break

        def bring(session: Session, result: DeviceResult[FsckReport]) -> None:
            base = self.seen[session.host.name].facts.base_dir
            self._sources.update(fetch(session, base, donors[session.host.name], folder))
            result.outcome = "ok"
            result.text = "fleet fetched intact files for other devices"

        if donors:
            self._everywhere(bring, [host for host in self.hosts if host.name in donors])

    def _lacking(self, seen: Seen) -> dict[str, int]:
        """sha256 → bytes of what its releases need and it has not intact."""
        contents, unhashed, found = seen.contents, bool(unhashed_why(seen.facts)), {}
        for label in contents.releases:
            manifest = self._manifests.get(label)
            for sha, item in manifest.blobs.items() if manifest else ():
                if sha not in contents.blobs or not (unhashed or contents.hashes.get(sha) == sha):
                    found[sha] = item.size
        return found

    def _mend(self, session: Session, result: DeviceResult[FsckReport]) -> None:
        seen = self.seen[session.host.name]
        facts = facts_of(session)
        lying = [] if unhashed_why(facts) else seen.contents.lying
        with Lease(session, "fsck --repair", self.run_id) as lease:
            lease.take()
            if lying:
                self._ask(session, facts, "aside", shas=lying)
            now = self._ask(session, facts, "list")
            Repair(session, facts, self._manifests, self._sources, self.run_id).mend(now)
            after = self._ask(session, facts, "list")
        seen.contents.blobs = after.blobs
        seen.left = damages(after, facts.base_dir, hashed=False)
        self._tell(session, result, seen)

    def _tell(self, session: Session, result: DeviceResult[FsckReport], seen: Seen) -> None:
        facts, contents = seen.facts, seen.contents
        why = unhashed_why(facts)
        left = {damage.place for damage in seen.left}
        tried = self.options.repair
        closed = [damage for damage in seen.found if damage.place not in left]
        result.value = FsckReport(
            damages=tuple(with_cure(damage, repaired=tried) for damage in seen.left),
            repaired=tuple(closed),
            blobs=len(contents.blobs),
            bytes=contents.size,
            base_dir=facts.base_dir,
            emulated=facts.emulated,
        )
        result.outcome = "failed" if seen.left or why else "changed" if closed else "ok"
        result.text = why or _summary(contents, seen.left, closed)
        if result.outcome != "failed" and (contents.blobs or contents.releases):
            when = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            self._ask(session, facts, "passed", word=passed_word(when, contents))

    def _ask(
        self,
        session: Session,
        facts: Facts,
        what: str,
        *,
        word: str = "",
        shas: list[str] | None = None,
    ) -> Contents:
        host, told = session.host.name, False

        def tell(done: int, total: int) -> None:
            nonlocal told
            if not told:
                session.emit(StepStarted(host, "fsck", f"hash {human_bytes(total)}", total))
            told = True
            session.emit(Progress(host, "fsck", done, total))

        answer = Contents(tell)
        rate = self.options.bandwidth
        asked = ask(facts, what, rate=rate, word=word or self.run_id, shas=shas)
        lease = session.lease if what == "aside" else None
        done = session.run(
            asked.command,
            "fsck",
            stdin=asked.stdin,
            deadline=LeasedStall(SILENT_SECONDS, lease) if lease else Stall(SILENT_SECONDS),
            mutates=lease is not None,
            on_stdout=answer.take,
        )
        if not done.ok:
            raise failed(done, "fsck", host)
        answer.check(host)
        return answer


def _summary(contents: Contents, left: Sequence[Damage], repaired: Sequence[Damage]) -> str:
    if left:
        return f"damaged or missing items left: {len(left)}" + (
            f", repaired: {len(repaired)}" if repaired else ""
        )
    what = f"checked {len(contents.blobs)} files of {human_bytes(contents.size)}"
    return (
        f"damaged or missing items repaired: {len(repaired)}"
        if repaired
        else f"{what}, no damage found"
    )
