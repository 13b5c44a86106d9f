"""Reading the store: one folder per build, `qairt-<build id>/`, visible once it is complete."""

from __future__ import annotations

from pathlib import Path

from fleet.model.errors import InputError, RuntimeStoreError
from fleet.model.home import fleet_home
from fleet.model.runtime import Runtime, same_build, version_key
from fleet.runtimes import manifest
from fleet.runtimes.layout import group_of
from fleet.runtimes.sources import SDK_PARTS


def default_root() -> Path:
    """`$FLEET_HOME/runtimes`; see `fleet.model.home`."""
    return fleet_home() / "runtimes"


class Catalog:
    """The runtimes under `root`. Reads only; `RuntimeStore` adds and removes."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root if root is not None else default_root()

    def list(self) -> tuple[Runtime, ...]:
        """All runtimes whose record can be read, newest first; files are not checked."""
        found = []
        for folder in self.folders():
            try:
                found.append(manifest.read(folder))
            except RuntimeStoreError:
                continue  # `problems` reports it; the others stay usable
        return tuple(sorted(found, key=lambda item: version_key(item.build_id), reverse=True))

    def problems(self) -> tuple[str, ...]:
        """What is wrong with the store, one sentence each; () when all is well."""
        found: list[str] = []
        for folder in self.folders():
            try:
                runtime = manifest.read(folder)
            except RuntimeStoreError as error:
                found.append(error.message)
            else:
                found += [f"{runtime.id}: {path} {why}" for path, why in manifest.damaged(runtime)]
        return tuple(found)

    def get(self, name: str) -> Runtime:
        """The runtime of this id, build id or version (the newest build of a version).

        Raises InputError when there is none, RuntimeStoreError when it is damaged.
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
        """The newest runtime with this target, of this version or build id when one is given.

        None when there is none; RuntimeStoreError when it is there and damaged.
        """
        runtime = self.lookup(version, target)
        return None if runtime is None else self.verify(runtime)

    def verify(self, runtime: Runtime, *, deep: bool = False) -> Runtime:
        """Check that every file is there with its size (`deep`: and its SHA-256).

        Raises RuntimeStoreError naming the file and the command that repairs it.
        """
        found = manifest.damaged(runtime, deep=deep)
        if found:
            path, why = found[0]
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            raise RuntimeStoreError(
                f"runtime {runtime.id} is damaged: {path} {why}{more}", hint=_repair(runtime, path)
            )
        return runtime

    def folders(self) -> tuple[Path, ...]:
        """All folders of runtimes, readable or not."""
        return tuple(sorted(self.root.glob("qairt-*")))

    def lookup(self, version: str | None, target: str) -> Runtime | None:
        """As `find`, without the look at its files."""
        for runtime in self.list():
            fits = version is None or same_build(runtime.build_id, version)
            if fits and target in runtime.targets:
                return runtime
        return None


def _repair(runtime: Runtime, path: str) -> str:
    """The command that brings a file back: from the source that its group came from."""
    source = runtime.source_of(group_of(path))
    target = next((item for item in source.provides if item in runtime.targets), "TARGET")
    if source.kind == SDK_PARTS:
        return f"fleet runtime fetch {runtime.build_id} --sdk --target {target}"
    if source.kind != "wheel":
        return f"fleet runtime add {source.name}"
    return f"fleet runtime fetch {runtime.version} --target {target}"
