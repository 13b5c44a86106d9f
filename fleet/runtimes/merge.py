"""Join what was staged with a runtime of the same build that is already in the store.

Files are put in place first and `runtime.json` last, so a reader sees the old runtime or the
new one. A group (a target, or one Hexagon folder) is never mixed from two publishers: x86_64
wheels are rewritten (RPATH), so the same build can have other bytes in the SDK.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from fleet.model.errors import RuntimeStoreError
from fleet.model.runtime import Library, Runtime, RuntimeSource
from fleet.runtimes import manifest
from fleet.runtimes.layout import group_of

Files = dict[str, Library]


@dataclass
class _Outcome:
    """What a merge does: the files afterwards, those to put in place and those to delete."""

    files: Files
    place: set[str]
    delete: set[str]
    accepted: set[str]
    replaced: set[str]


def commit(staged: Runtime, root: Path) -> Runtime:
    """Make the staged runtime part of the store at `root`; the caller holds the lock.

    Returns the runtime as stored, with `changed`. Raises RuntimeStoreError when the store
    has other bytes of the same build from the same kind of source.
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
        replace(item, provides=tuple(g for g in item.provides if g not in outcome.replaced))
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
    fresh = replace(source, provides=tuple(sorted(outcome.accepted | set(before))))
    return tuple(item for item in (*kept, fresh) if item.provides)


def _documents(stage: Path, final: Path) -> None:
    for path in stage.iterdir():
        if path.is_file() and not (final / path.name).exists():
            path.replace(final / path.name)
