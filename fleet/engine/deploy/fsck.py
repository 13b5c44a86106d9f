"""A check of every stored file by hash, and repairs.

Corrupt files are quarantined, and restored where a good copy exists.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from fleet.model.deadline import Stall, utc_text
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

# Repairs after fsck: contents that still exist somewhere, links, the current release.

SILENT_SECONDS = 120.0


@dataclass
class Held:
    """The contents that this workstation can send, by SHA-256.

    They are files of the runtime store, large files of earlier deploys, files below `given`, and
    files that other boards sent (`fetched`).
    """

    given: Sequence[Path] = ()
    fetched: dict[str, Path] = field(default_factory=dict)

    def find(self, wanted: Mapping[str, int]) -> dict[str, Path]:
        """Return the available ones of `wanted` (sha256 → bytes), each hashed again."""
        available = {sha: path for sha, path in self.fetched.items() if sha in wanted}
        cache = HashCache()
        for sha in wanted:
            known = None if sha in available else cache.holding(sha)
            if known is not None and _holds(known, sha):
                available[sha] = known
        places = [
            (library.sha256, runtime.root / library.path)
            for runtime in Catalog().list()
            for library in runtime.libraries
        ]
        for sha, path in places:
            if sha in wanted and sha not in available and _holds(path, sha):
                available[sha] = path
        sizes = {size for sha, size in wanted.items() if sha not in available}
        for path in _files(self.given) if sizes else ():
            if path.stat().st_size in sizes:
                sha = sha256_file(path)
                available |= {sha: path} if sha in wanted else {}
        return available


def _holds(path: Path, sha: str) -> bool:
    try:
        return sha256_file(path) == sha
    except OSError:
        return False


def _files(given: Iterable[Path]) -> list[Path]:
    """Return all files below the given places.

    Raises InputError for a place that does not exist.
    """
    files: list[Path] = []
    for place in given:
        if not place.exists():
            raise InputError(f"{place} does not exist", hint="give --source FILE_OR_FOLDER")
        below = place.rglob("*") if place.is_dir() else [place]
        files += [path for path in below if path.is_file()]
    return files


def fetch(session: Session, base: str, shas: Iterable[str], folder: Path) -> dict[str, Path]:
    """Copy blobs of a board to files in `folder`; a blob with another hash is left out."""
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
    """A repair on one device, under its lease.

    `manifests` are intact ones of any board, by `<name>/<id>`.
    """

    session: Session
    facts: Facts
    manifests: Mapping[str, Manifest]
    sources: Mapping[str, Path]
    run_id: str

    def mend(self, contents: Contents) -> None:
        """Repair the damages of `contents`, whose corrupt blobs are in quarantine already."""
        base = self.facts.base_dir
        hurt = {damage.release for damage in damages(contents, base, hashed=False)}
        have = dict(contents.blobs)
        for release in contents.releases.values():
            manifest = release.manifest or self.manifests.get(release.label)
            if manifest is not None and release.label in hurt:
                self._release(release, manifest, contents, have)
        for name in hurt & {*contents.current, *contents.history}:
            now = contents.current.get(name, "")
            target = now if f"{name}/{now}" in contents.releases else _last(contents, name)
            manifest = self.manifests.get(f"{name}/{target}")
            if manifest and all(have.get(sha) == item.size for sha, item in manifest.blobs.items()):
                self._carry(manifest, [SwitchRelease(name, target, now)])

    def _release(
        self, release: StoredRelease, manifest: Manifest, contents: Contents, have: dict[str, int]
    ) -> None:
        """Send the available contents of a release, and link it if none is missing afterwards."""
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
            if contents.current.get(release.name) == release.id:
                steps.append(SwitchRelease(release.name, release.id, release.id))
            self._carry(manifest, steps)

    def _carry(self, manifest: Manifest, steps: Sequence[Action]) -> bool:
        try:
            carry_out(self.session, self.facts, manifest, steps, self.run_id)
        except (InputError, TransferError) as error:
            self.session.warn(error.message)
            return False
        return True


def _last(contents: Contents, name: str) -> str:
    """Return the newest release of the history that still exists, "" if there is none."""
    past = reversed(contents.history.get(name, []))
    return next((entry for entry in past if f"{name}/{entry}" in contents.releases), "")


def unhashed_why(facts: Facts) -> str:
    """Return why a device cannot hash its store; "" if it can."""
    if facts.tools.sha256 or backend_for(facts).hashes:
        return ""
    return (
        "fleet could not check the contents of files: the device has no sha256 tool and no Python"
    )


@dataclass(frozen=True)
class FsckOptions:
    """The options of a check.

    `bandwidth` limits the bytes a second that each device reads from its store. `sources` are files
    and folders to search for contents for a repair, besides those that fleet knows already.
    """

    repair: bool = False
    bandwidth: float | None = None
    sources: Sequence[Path] = ()
    parallel: int = 16
    accept_new: bool = False


@dataclass(frozen=True)
class FsckReport:
    """The result of a check on one device: the remaining damages, and the repaired ones.

    `blobs` and `bytes` count the hashed files.
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
        """The remaining and the repaired damages, each with a flag `repaired`."""
        sides = ((self.damages, False), (self.repaired, True))
        return [to_plain(damage) | {"repaired": done} for side, done in sides for damage in side]


@dataclass
class Seen:
    """The state of a device: facts, contents and damages, and the damages that remain."""

    facts: Facts
    contents: Contents
    damages: list[Damage]
    left: list[Damage] = field(default_factory=list)

    @property
    def manifests(self) -> dict[str, Manifest]:
        """The manifests of the intact releases of the device."""
        every = self.contents.releases.items()
        return {label: release.manifest for label, release in every if release.manifest}


class Fsck:
    """A check of all devices, then a repair if wanted, in which one device may help another."""

    def __init__(
        self, hosts: Sequence[Host], listener: Listener, options: FsckOptions | None = None
    ) -> None:
        self.hosts, self.options = tuple(hosts), options or FsckOptions()
        self.run_id = new_run_id()
        self.states: dict[str, Seen] = {}
        self._listener = listener
        self._held = Held(self.options.sources)
        self._sources: dict[str, Path] = {}
        self._manifests: dict[str, Manifest] = {}

    def run(self) -> list[DeviceResult[FsckReport]]:
        """Check every device; with `repair`, repair the damaged ones."""
        results = self._everywhere(self._look, self.hosts)
        hurt = [
            host
            for host in self.hosts
            if host.name in self.states and self.states[host.name].damages
        ]
        if not self.options.repair or not hurt:
            return results
        for state in self.states.values():
            self._manifests |= state.manifests
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
        state = Seen(facts, contents, [])
        hashed = not unhashed_why(facts)
        state.damages = damages(contents, facts.base_dir, hashed=hashed)
        self.states[session.host.name] = state
        lying = contents.lying if hashed else []
        if state.damages and not self.options.repair:
            if lying:
                with Lease(session, "fsck", self.run_id):
                    self._ask(session, facts, "aside", shas=lying)
            self._again(session, state)
        state.left = state.damages
        self._tell(session, result, state)

    def _again(self, session: Session, state: Seen) -> None:
        """Drop the damages that another deploy has repaired in the meantime."""
        now = damages(self._ask(session, state.facts, "list"), state.facts.base_dir, hashed=False)
        still = {damage.place for damage in now}
        state.damages = [
            damage for damage in state.damages if damage.place in still or not damage.release
        ]

    def _find(self, hurt: Sequence[Host], folder: Path) -> None:
        """Find the missing contents: on this workstation, or on a board with intact ones."""
        wanted: dict[str, int] = {}
        for host in hurt:
            wanted |= self._lacking(self.states[host.name])
        self._sources = self._held.find(wanted)
        donors: dict[str, list[str]] = {}
        for sha in wanted.keys() - self._sources.keys():
            for host in self.hosts:
                state = self.states.get(host.name)
                if state is not None and state.contents.hashes.get(sha) == sha:
                    donors.setdefault(host.name, []).append(sha)
                    break

        def bring(session: Session, result: DeviceResult[FsckReport]) -> None:
            base = self.states[session.host.name].facts.base_dir
            self._sources.update(fetch(session, base, donors[session.host.name], folder))
            result.outcome = "ok"
            result.text = "fleet fetched intact files for other devices"

        if donors:
            self._everywhere(bring, [host for host in self.hosts if host.name in donors])

    def _lacking(self, state: Seen) -> dict[str, int]:
        """Return sha256 → bytes of the needed contents that the device does not have intact."""
        contents, unhashed, missing = state.contents, bool(unhashed_why(state.facts)), {}
        for label in contents.releases:
            manifest = self._manifests.get(label)
            for sha, item in manifest.blobs.items() if manifest else ():
                if sha not in contents.blobs or not (unhashed or contents.hashes.get(sha) == sha):
                    missing[sha] = item.size
        return missing

    def _mend(self, session: Session, result: DeviceResult[FsckReport]) -> None:
        state = self.states[session.host.name]
        facts = facts_of(session)
        lying = [] if unhashed_why(facts) else state.contents.lying
        with Lease(session, "fsck --repair", self.run_id) as lease:
            lease.take()
            if lying:
                self._ask(session, facts, "aside", shas=lying)
            now = self._ask(session, facts, "list")
            Repair(session, facts, self._manifests, self._sources, self.run_id).mend(now)
            after = self._ask(session, facts, "list")
        state.contents.blobs = after.blobs
        state.left = damages(after, facts.base_dir, hashed=False)
        self._tell(session, result, state)

    def _tell(self, session: Session, result: DeviceResult[FsckReport], state: Seen) -> None:
        facts, contents = state.facts, state.contents
        why = unhashed_why(facts)
        left = {damage.place for damage in state.left}
        tried = self.options.repair
        closed = [damage for damage in state.damages if damage.place not in left]
        result.value = FsckReport(
            damages=tuple(with_cure(damage, repaired=tried) for damage in state.left),
            repaired=tuple(closed),
            blobs=len(contents.blobs),
            bytes=contents.size,
            base_dir=facts.base_dir,
            emulated=facts.emulated,
        )
        result.outcome = "failed" if state.left or why else "changed" if closed else "ok"
        result.text = why or _summary(contents, state.left, closed)
        if result.outcome != "failed" and (contents.blobs or contents.releases):
            self._ask(session, facts, "passed", word=passed_word(utc_text(), contents))

    def _ask(
        self,
        session: Session,
        facts: Facts,
        what: str,
        *,
        word: str = "",
        shas: list[str] | None = None,
    ) -> Contents:
        host, announced = session.host.name, False

        def tell(done: int, total: int) -> None:
            nonlocal announced
            if not announced:
                session.emit(StepStarted(host, "fsck", f"hash {human_bytes(total)}", total))
            announced = True
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
