"""The content of the store: one folder per build, `qairt-<build id>/`, visible once complete."""

from __future__ import annotations

from pathlib import Path

from fleet.model.errors import InputError, RuntimeStoreError
from fleet.model.home import fleet_home
from fleet.model.runtime import Runtime, same_build, version_key
from fleet.runtimes import manifest
from fleet.runtimes.layout import SDK_PARTS, group_of


def default_root() -> Path:
    """Return `$FLEET_HOME/runtimes`; see `fleet.model.home`."""
    return fleet_home() / "runtimes"


class Catalog:
    """The runtimes under `root`. It only reads; `RuntimeStore` adds and removes."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root if root is not None else default_root()

    def list(self) -> tuple[Runtime, ...]:
        """Return all runtimes with a readable record, newest first. Files are not checked."""
        runtimes = []
        for folder in self.folders():
            try:
                runtimes.append(manifest.read(folder))
            except RuntimeStoreError:
                continue  # `problems` reports it; the others stay usable
        return tuple(sorted(runtimes, key=lambda item: version_key(item.build_id), reverse=True))

    def problems(self) -> tuple[str, ...]:
        """Return the problems of the store, one sentence each; () if there are none."""
        problems: list[str] = []
        for folder in self.folders():
            try:
                runtime = manifest.read(folder)
            except RuntimeStoreError as error:
                problems.append(error.message)
            else:
                problems += [
                    f"{runtime.id}: {path} {why}" for path, why in manifest.damaged(runtime)
                ]
        return tuple(problems)

    def get(self, name: str) -> Runtime:
        """Return the runtime with this id, build id or version (the newest build of a version).

        Raises InputError if there is none, RuntimeStoreError if it is damaged.
        """
        exact = self.root / name
        if "/" not in name and (exact / manifest.NAME).is_file():
            return self.verify(manifest.read(exact))
        for runtime in self.list():
            if same_build(runtime.build_id, name.removeprefix("qairt-")):
                return self.verify(runtime)
        have = ", ".join(item.id for item in self.list()) or "none"
        raise InputError(
            f"the runtime store {self.root} has no runtime '{name}'",
            hint=f"use one of the runtimes of the store ({have}), or add it: fleet runtime fetch "
            "VERSION, or fleet runtime add SDK",
        )

    def find(self, version: str | None, target: str) -> Runtime | None:
        """Return the newest runtime with this target, and with this version or build id if given.

        Return None if there is none. Raises RuntimeStoreError if it is damaged.
        """
        runtime = self.lookup(version, target)
        return None if runtime is None else self.verify(runtime)

    def verify(self, runtime: Runtime, *, deep: bool = False) -> Runtime:
        """Check that every file exists with its size (`deep`: and its SHA-256).

        Raises RuntimeStoreError with the file and the command that repairs it.
        """
        damage = manifest.damaged(runtime, deep=deep)
        if damage:
            path, why = damage[0]
            more = f" (and {len(damage) - 1} more)" if len(damage) > 1 else ""
            raise RuntimeStoreError(
                f"runtime {runtime.id} is damaged: {path} {why}{more}", hint=_repair(runtime, path)
            )
        return runtime

    def folders(self) -> tuple[Path, ...]:
        """Return all folders of runtimes, readable or not."""
        return tuple(sorted(self.root.glob("qairt-*")))

    def lookup(self, version: str | None, target: str) -> Runtime | None:
        """Return the runtime as `find` does, without checking its files; None if there is none."""
        for runtime in self.list():
            fits = version is None or same_build(runtime.build_id, version)
            if fits and target in runtime.targets:
                return runtime
        return None


def _repair(runtime: Runtime, path: str) -> str:
    """Return the command that restores a file from the source of its group."""
    source = runtime.source_of(group_of(path))
    target = next((item for item in source.provides if item in runtime.targets), "TARGET")
    if source.kind == SDK_PARTS:
        return f"fleet runtime fetch {runtime.build_id} --sdk --target {target}"
    if source.kind != "wheel":
        return f"fleet runtime add {source.name}"
    return f"fleet runtime fetch {runtime.version} --target {target}"
