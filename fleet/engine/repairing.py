"""Putting right what fsck found: contents that are still somewhere, links, what is live."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fleet.content.hashes import HashCache
from fleet.device.shell import AfterMark, device_script
from fleet.engine.releasing import carry_out
from fleet.engine.session import Session
from fleet.model.deadline import Stall
from fleet.model.errors import InputError, TransferError
from fleet.model.facts import Facts
from fleet.model.files import sha256_file
from fleet.model.manifest import Manifest
from fleet.model.plan import Action, Blob, SendBlobs, StageRelease, SwitchRelease
from fleet.ops.backend import backend_for
from fleet.ops.fsck import Contents, StoredRelease, damages
from fleet.runtimes.catalog import Catalog

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
            part = replace(manifest, files=tuple(sent), stored_id=release.id)
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
