"""The QAIRT runtime, files and packages of each kind of device, resolved once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from fleet.model.errors import InputError, RuntimeStoreError
from fleet.model.events import Listener, Progress, StepStarted
from fleet.model.files import FileRef
from fleet.model.lockfile import Lock, LockedRelease
from fleet.model.runtime import Runtime
from fleet.runners import Runner
from fleet.runtimes.packages import packages_for
from fleet.runtimes.releases import package, sdk_command, wheel_for
from fleet.runtimes.scan import carried_runtime
from fleet.runtimes.select import Selection, select_files
from fleet.runtimes.store import RuntimeStore
from fleet.runtimes.targets import target_facts


@dataclass(frozen=True)
class Parts:
    """The runtime and the files of one kind of device."""

    target: str
    runtime: Runtime
    selection: Selection
    python: str | None = None  # such as 3.12, if the runner brings packages for it


@dataclass(frozen=True, kw_only=True)
class WantedRuntime:
    """The choice of the runtime.

    `features` are rows of runtime_files.yaml, and `npu` is True if a run uses the NPU. `version` is
    that of QAIRT, None for the newest. With `wheel`, the runtime may come from a wheel of PyPI.
    `frozen` names the builds and files to use, even if newer ones exist; nothing is fetched then,
    nor with `offline`. `carried` is the folder of QAIRT's libraries that a program brings along.
    """

    version: str | None
    wheel: bool
    features: tuple[str, ...] = ()
    npu: bool = True
    offline: bool = False
    frozen: Lock | None = None
    carried: Path | None = None


class Resolver:
    """The runtimes of the store by target. Missing ones are fetched if that is allowed."""

    def __init__(
        self, runner: Runner, store: RuntimeStore, listener: Listener, wanted: WantedRuntime
    ) -> None:
        self._runner, self._store, self._say = runner, store, listener
        self._wanted = wanted
        self._lock = threading.Lock()
        self._parts: dict[tuple[str, str | None, str | None], Parts] = {}

    def root(self, target: str) -> Path | None:
        """Return the runtime folder on this workstation, None if the target was not resolved
        yet.
        """
        with self._lock:
            roots = [parts.runtime.root for parts in self._parts.values() if parts.target == target]
        return roots[0] if roots else None

    def parts(self, target: str, arch: str | None, python: str | None) -> Parts:
        """Return the runtime and files for a Hexagon arch (`v73`) or, with None, any arch."""
        with self._lock:
            key = (target, arch, python)
            if key not in self._parts:
                locked = self._wanted.frozen.required(target, arch) if self._wanted.frozen else None
                if self._runner.runtime is None:
                    runtime = carried_runtime(self._wanted.carried, target)
                elif locked:
                    runtime = self._locked_runtime(target, locked)
                else:
                    runtime = self._runtime(target)
                selection = select_files(
                    runtime,
                    target,
                    arch,
                    self._runner.runtime,
                    self._wanted.features,
                    npu=self._wanted.npu,
                )
                if locked is not None:
                    files = locked.only(selection.files)
                    tool = any(item.name.startswith("bin/") for item in files)
                    has_tool = selection.has_tool and tool
                    selection = replace(selection, files=files, has_tool=has_tool)
                self._parts[key] = Parts(target, runtime, selection, python)
            return self._parts[key]

    def _locked_runtime(self, target: str, locked: LockedRelease) -> Runtime:
        runtime = self._store.find(locked.build_id, target)
        if runtime is None:
            raise RuntimeStoreError(
                f"the lock file needs QAIRT {locked.build_id} for {target}, but this "
                "workstation does not have it, and --frozen forbids a download",
                hint=f"fleet runtime fetch {locked.build_id} --target {target}",
            )
        return runtime

    def _runtime(self, target: str) -> Runtime:
        version = self._wanted.version
        stored = self._store.find(version, target)
        if stored is not None:
            return stored
        has_wheels = target_facts(target).wheel_machine is not None
        wheel = wheel_for(version) if version and has_wheels else None
        if wheel is None or not self._wanted.wheel:
            raise RuntimeStoreError(
                f"this workstation has no QAIRT {version or 'runtime'} for {target}",
                hint=f"{sdk_command(version, target)}; fleet runtime list (shows what you have)",
            )
        self._say(StepStarted("", "fetch", f"QAIRT {version} for {target}"))
        runtime = self._store.fetch(
            f"{package()}=={wheel}",
            target=target,
            offline=self._wanted.offline,
            progress=self._progress,
        )
        self._say(StepStarted("", "fetched", f"QAIRT {runtime.build_id} is downloaded"))
        return runtime

    def _progress(self, doing: str, done: int, total: int | None) -> None:
        self._say(Progress("", doing, done, total or 0))

    def site(self, parts: Parts) -> Callable[[tuple[str, ...]], tuple[FileRef, ...]]:
        """Return a function: requirements → their files. It raises InputError without Python."""

        def files(requirements: tuple[str, ...]) -> tuple[FileRef, ...]:
            if parts.python is None:
                raise InputError(
                    f"the runner {self._runner.name} needs python3, but the device does not "
                    "have it",
                    hint="run on the device: winget install Python.Python.3.12 --architecture arm64"
                    if target_facts(parts.target).os == "windows"
                    else "run on the device: sudo apt install python3",
                )
            with self._lock:
                packages = packages_for(
                    requirements,
                    parts.python,
                    parts.target,
                    offline=self._wanted.offline,
                    progress=self._progress,
                )
            return packages.files

        return files
