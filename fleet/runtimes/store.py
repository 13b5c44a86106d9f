"""Changes of the store of QAIRT runtimes: add, fetch, remove."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from fleet.model.errors import InputError, RuntimeStoreError, reason
from fleet.model.files import sha256_file
from fleet.model.runtime import Library, Runtime, RuntimeSource, same_build
from fleet.runtimes import manifest, pip
from fleet.runtimes.catalog import Catalog
from fleet.runtimes.layout import (
    SDK_PARTS,
    OpenedSource,
    group_of,
    open_file,
    open_folder,
    open_sdk_parts,
    sdk_spans,
)
from fleet.runtimes.releases import (
    DEFAULT_SPEC,
    WheelSpec,
    parse_spec,
    sdk_command,
    sdk_url,
    sdk_version,
)
from fleet.runtimes.scan import build_of, require_consistent
from fleet.runtimes.stage import Progress, file_lock, fill, silent, stage_folder
from fleet.runtimes.targets import target_facts

# The merge of a staged runtime with a runtime of the same build in the store. Files are put in
# place first and `runtime.json` last, so that a reader sees the old or the new runtime. A group (a
# target, or one Hexagon folder) never mixes two publishers: x86_64 wheels are rewritten (RPATH), so
# that their files can differ from those of the same build in the SDK.
# wheels are rewritten (RPATH), so the same build can have other bytes in the SDK.

Files = dict[str, Library]


@dataclass
class _Outcome:
    """The result of a merge: its files, those to put in place and those to delete."""

    files: Files
    place: set[str]
    delete: set[str]
    accepted: set[str]
    replaced: set[str]


def commit(staged: Runtime, root: Path) -> Runtime:
    """Add the staged runtime to the store at `root`. The caller holds the lock.

    Returns the stored runtime with `changed`. Raises RuntimeStoreError if the store has other bytes
    of the same build from the same kind of source.
    """
    final = root / staged.id
    if not (final / manifest.NAME).exists():
        shutil.rmtree(final, ignore_errors=True)
        manifest.write(staged, staged.root)
        staged.root.chmod(0o755)
        staged.root.rename(final)
        return replace(staged, root=final, changed=True)
    existing = manifest.read(final)
    outcome = _decide(existing, staged)
    for path in sorted(outcome.place):
        (final / path).parent.mkdir(parents=True, exist_ok=True)
        (staged.root / path).replace(final / path)
    _documents(staged.root, final)
    sources = _sources(existing, staged.source, outcome)
    merged = manifest.make(existing.build_id, final, sources, outcome.files.values())
    if outcome.place or outcome.delete or sources != existing.sources:
        manifest.write(merged, final)
    for path in outcome.delete:
        (final / path).unlink(missing_ok=True)
    return replace(merged, changed=bool(outcome.place or outcome.delete))


def _decide(existing: Runtime, staged: Runtime) -> _Outcome:
    outcome = _Outcome({item.path: item for item in existing.libraries}, set(), set(), set(), set())
    for group in sorted({group_of(item.path) for item in staged.libraries}):
        old, new = _group(existing, group), _group(staged, group)
        differ = [path for path in new if path in old and old[path].sha256 != new[path].sha256]
        was_sdk = _kind(existing, group).startswith("sdk")
        is_sdk = staged.source.kind.startswith("sdk")
        if differ and is_sdk and not was_sdk:
            outcome.delete |= set(old) - set(new)
            outcome.replaced.add(group)
        elif differ and was_sdk and not is_sdk:
            continue  # the SDK has more (tools, licences for them); the wheel adds nothing
        elif differ:
            raise RuntimeStoreError(
                f"{differ[0]} in {staged.source.name} differs from {differ[0]} in the stored "
                f"runtime {existing.id}, although both are build {existing.build_id}",
                hint=f"to replace the stored runtime: fleet runtime remove {existing.id}, then "
                f"add {staged.source.name} again",
            )
        outcome.accepted.add(group)
        outcome.place |= {path for path in new if not _in_place(existing, old, new[path])}
        outcome.files |= new
    for path in outcome.delete:
        del outcome.files[path]
    return outcome


def _group(runtime: Runtime, group: str) -> Files:
    return {item.path: item for item in runtime.libraries if group_of(item.path) == group}


def _in_place(existing: Runtime, old: Files, new: Library) -> bool:
    known = old.get(new.path)
    path = existing.root / new.path
    return (
        known is not None
        and known.sha256 == new.sha256
        and path.is_file()
        and path.stat().st_size == new.size
    )


def _kind(runtime: Runtime, group: str) -> str:
    return next((item.kind for item in runtime.sources if group in item.provides), "")


def _sources(
    existing: Runtime, source: RuntimeSource, outcome: _Outcome
) -> tuple[RuntimeSource, ...]:
    kept = [
        structs.replace(item, provides=tuple(g for g in item.provides if g not in outcome.replaced))
        for item in existing.sources
        if (item.kind, item.name, item.sha256) != (source.kind, source.name, source.sha256)
    ]
    before = next(
        (
            s.provides
            for s in existing.sources
            if s.name == source.name and (s.kind, s.sha256) == (source.kind, source.sha256)
        ),
        (),
    )
    fresh = structs.replace(source, provides=tuple(sorted(outcome.accepted | set(before))))
    return tuple(item for item in (*kept, fresh) if item.provides)


def _documents(stage: Path, final: Path) -> None:
    for path in stage.iterdir():
        if path.is_file() and not (final / path.name).exists():
            path.replace(final / path.name)


_LOCK_SECONDS = 120.0  # a commit renames and writes one small file; 2 minutes means that it hangs


class RuntimeStore(Catalog):
    """The runtimes under `root`: read, add, fetch, remove. Several processes may use one store.

    A runtime is visible after its `runtime.json` is written, which happens last.
    """

    def add(
        self,
        path_or_url: str | Path,
        *,
        sha256: str | None = None,
        targets: Collection[str] = (),
        progress: Progress | None = None,
    ) -> Runtime:
        """Add an SDK folder, an SDK zip, a wheel, or one of these by URL (`sha256` required).

        `targets` limits the files of an SDK; the default is all Linux and Android targets.
        `changed` of the result is False if the same source was added before. Raises InputError, or
        RuntimeStoreError for a damaged, mixed or hostile source.
        """
        tell = progress or silent
        text = str(path_or_url)
        with _os_errors(f"cannot add {text}"):
            if "://" in text:
                return self._add_url(text, sha256, targets, tell)
            path = Path(path_or_url).expanduser()
            if path.is_file():
                return self._add_file(path, path.name, sha256, targets, tell)
            if not path.is_dir():
                raise InputError(
                    f"the file or folder {path} does not exist",
                    hint="give the path of a QAIRT SDK folder, a zip or a wheel",
                )
            if sha256:
                raise InputError(
                    "--sha256 works only for a file, but the SDK is a folder",
                    hint="run the command without --sha256",
                )
            return self._store(open_folder(path, targets), tell)

    def fetch(
        self,
        spec: str = DEFAULT_SPEC,
        *,
        target: str,
        progress: Progress | None = None,
        offline: bool = False,
    ) -> Runtime:
        """Return the runtime of a wheel (`onnxruntime-qnn==2.7.0`) or QAIRT version (`2.51.0`).

        A stored runtime is not fetched again. With `offline` the network is never used. Raises
        RuntimeStoreError with the command that gets the runtime if it is unavailable.
        """
        facts = target_facts(target)
        wheel = parse_spec(spec)
        known = self._of_wheel(wheel, target, offline=offline)
        if known is not None and not manifest.damaged(known):
            return known
        if offline:
            raise RuntimeStoreError(
                f"{wheel.label} for {target} is not in the runtime store {self.root}, "
                "and --offline forbids a download",
                hint=f"fleet runtime fetch {spec} --target {target} (needs a network)",
            )
        if not wheel.requirement:
            raise RuntimeStoreError(
                f"{wheel.label} is not in any Python wheel that fleet knows",
                hint=f"get the SDK from Qualcomm: {sdk_command(wheel.qairt, target)}",
            )
        if not facts.wheel_platforms:
            raise RuntimeStoreError(
                f"no Python wheel contains QAIRT for the target {target}",
                hint=f"get the SDK from Qualcomm: {sdk_command(wheel.qairt, target)}",
            )
        return self._fetch_wheel(wheel, target, progress or silent)

    def fetch_sdk(
        self,
        version: str,
        *,
        target: str,
        sha256: str | None = None,
        progress: Progress | None = None,
        offline: bool = False,
    ) -> Runtime:
        """Return the runtime of the vendor's SDK of a version with date (`2.45.0.260326`).

        An undamaged runtime of the store is returned without a download. Only the files of
        `target` are downloaded if the server allows it. The SHA-256 of the zip's table of contents
        is stored and must be the same the next time. With `sha256` the whole zip is downloaded and
        verified. Raises InputError for a version without a date, and
        RuntimeStoreError if the SDK is unavailable or `offline` forbids the download.
        """
        target_facts(target)
        wanted = sdk_version(version)
        known = self.lookup(wanted, target)
        if known is not None and not manifest.damaged(known):
            return known
        url = sdk_url(wanted)
        if offline:
            raise RuntimeStoreError(
                f"QAIRT {wanted} for {target} is not in the runtime store {self.root}, "
                "and --offline forbids a download",
                hint=f"fleet runtime fetch {wanted} --sdk --target {target} (needs a network)",
            )
        tell = progress or silent
        with _os_errors(f"cannot fetch the SDK {wanted}"):
            if sha256:
                return self._add_url(url, sha256, (target,), tell)
            return self._add_parts(url, (target,), tell)

    def _add_parts(self, url: str, targets: Collection[str], progress: Progress) -> Runtime:
        from fleet.runtimes import download  # noqa: PLC0415 - 0.1 s for httpx

        folder, name = self.root / ".downloads", url.rsplit("/", 1)[-1]

        def wanted(copy: Path) -> list[download.Span]:
            return sdk_spans(copy, name, targets)

        with download.part_lock(folder, download.key_of(url)):
            copy = download.download_members(url, folder, wanted, progress)
            digest = download.contents_digest(copy)
            self._require_pinned(name, digest)
            with open_sdk_parts(copy, name, digest, targets) as opened:
                runtime = self._store(opened, progress)
            download.forget(copy)
        return runtime

    def _require_pinned(self, name: str, digest: str) -> None:
        """Raise RuntimeStoreError if an SDK with this name had other contents before."""
        for runtime in self.list():
            for source in runtime.sources:
                if source.kind == SDK_PARTS and source.name == name and source.sha256 != digest:
                    raise RuntimeStoreError(
                        f"the contents of {name} have changed since fleet first downloaded it: "
                        f"their SHA-256 was {source.sha256}, and is {digest} now",
                        hint=f"if you trust the new file: fleet runtime remove {runtime.id}; then "
                        "run the command again",
                    )

    def remove(self, name: str) -> Runtime | None:
        """Delete a runtime by id, build id or version, even if it is damaged.

        Returns the removed runtime, None if its record was unreadable. Raises InputError if there
        is none.
        """
        with _os_errors(f"cannot remove {name}"), self._locked():
            folder = self.root / name
            runtime = next(
                (
                    item
                    for item in self.list()
                    if item.id == name or same_build(item.build_id, name.removeprefix("qairt-"))
                ),
                None,
            )
            if runtime is not None:
                folder = runtime.root
            elif folder not in self.folders():
                raise InputError(f"{self.root} has no runtime '{name}'", hint="fleet runtime list")
            with stage_folder(self.root) as trash:
                folder.rename(trash / "runtime")  # atomically; the files are deleted afterwards
        return runtime

    def _locked(self) -> AbstractContextManager[None]:
        return file_lock(self.root / ".lock", _LOCK_SECONDS)

    def _of_wheel(self, wheel: WheelSpec, target: str, *, offline: bool) -> Runtime | None:
        if wheel.latest and not offline:
            return None  # only the index knows the newest version
        if wheel.qairt or wheel.latest:
            return self.lookup(wheel.qairt, target)
        for runtime in self.list():
            for source in runtime.sources:
                if source.name.startswith(wheel.file_prefix) and target in source.provides:
                    return runtime
        return None

    def _fetch_wheel(self, wheel: WheelSpec, target: str, progress: Progress) -> Runtime:
        platforms = target_facts(target).wheel_platforms
        with _os_errors(f"cannot fetch {wheel.label}"), stage_folder(self.root) as folder:
            path = pip.download(wheel.requirement, platforms, folder, progress)
            runtime = self._add_file(path, path.name, None, (target,), progress)
        if wheel.qairt and not same_build(runtime.build_id, wheel.qairt):
            raise RuntimeStoreError(
                f"{wheel.requirement} contains QAIRT {runtime.build_id} instead of {wheel.qairt}",
                hint="use the runtime with the version that it contains: fleet runtime show "
                f"{runtime.id}",
            )
        return self.verify(runtime)

    def _add_url(
        self, url: str, sha256: str | None, targets: Collection[str], progress: Progress
    ) -> Runtime:
        from fleet.runtimes import download  # noqa: PLC0415 - 0.1 s for httpx

        digest = download.checked_digest(url, sha256)
        folder = self.root / ".downloads"
        with download.part_lock(folder, digest):
            known = self._of_source(digest)
            if known is not None and set(targets) <= set(known.targets):
                return known
            path = download.download(url, digest, folder, progress)
            try:
                return self._add_file(path, url.rsplit("/", 1)[-1], digest, targets, progress)
            finally:
                path.unlink(missing_ok=True)

    def _add_file(
        self,
        path: Path,
        name: str,
        sha256: str | None,
        targets: Collection[str],
        progress: Progress,
    ) -> Runtime:
        digest = sha256_file(path)
        if sha256 and digest != sha256.lower():
            raise RuntimeStoreError(
                f"the SHA-256 of {path} is {digest}, but --sha256 says {sha256.lower()}",
                hint="download the file again, or correct --sha256",
            )
        with open_file(path, name, digest, targets) as opened:
            known = self._of_source(digest)
            if known is not None and opened.is_in(known):
                return known
            return self._store(opened, progress)

    def _store(self, opened: OpenedSource, progress: Progress) -> Runtime:
        source = opened.source
        with stage_folder(self.root) as folder:
            libraries = fill(opened.tree, opened.layout, folder, progress)
            require_consistent(libraries, source.name)
            witness = build_of(libraries)
            if witness is None or witness.build_id is None:
                raise RuntimeStoreError(
                    f"fleet cannot tell the QAIRT version of {source.name}: no file contains a "
                    "QAIRT build id",
                    hint="give a QAIRT SDK 2.25 or later, or an onnxruntime-qnn wheel",
                )
            groups = sorted({group_of(item.path) for item in libraries})
            source = structs.replace(source, provides=tuple(groups))
            staged = manifest.make(witness.build_id, folder, (source,), libraries)
            with self._locked():
                return commit(staged, self.root)

    def _of_source(self, digest: str) -> Runtime | None:
        """Return the runtime to which this file was added; None if it is unknown or damaged."""
        for runtime in self.list():
            if any(item.sha256 == digest for item in runtime.sources):
                return None if manifest.damaged(runtime) else runtime
        return None


@contextmanager
def _os_errors(doing: str) -> Iterator[None]:
    """Turn OSError (no room, no permission, failing disk) into RuntimeStoreError."""
    try:
        yield
    except OSError as error:
        raise RuntimeStoreError(
            f"{doing}: {error.filename or 'the disk'}: {reason(error)}",
            hint="check this path, its permissions and the free disk space (df -h), or set "
            "FLEET_HOME to another folder",
        ) from error
