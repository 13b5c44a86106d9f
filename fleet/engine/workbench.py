"""What all devices of one playbook share on the host: bundle, runtimes, file lists."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fleet.bundles.inspect import inspect_bundle
from fleet.bundles.op_packages import op_package_files, with_op_packages
from fleet.bundles.system_library import system_library
from fleet.config.playbook import DEFAULT_RUNNERS
from fleet.model.bundle import Bundle
from fleet.model.errors import InputError, PlaybookError, RuntimeStoreError
from fleet.model.events import Listener, Progress, StepStarted, Warned
from fleet.model.facts import Facts
from fleet.model.files import FileRef
from fleet.model.inventory import Host
from fleet.model.lockfile import Lock, LockedRelease
from fleet.model.manifest import RELEASE, Manifest
from fleet.model.plan import DevicePlan
from fleet.model.playbook import Playbook, RunSpec
from fleet.model.runtime import Runtime, no_runtime
from fleet.ops.environment import environment, health_as_dict, windows_environment
from fleet.runners import Kit, Layout, Runner
from fleet.runners.registry import OWN, runner
from fleet.runtimes.packages import packages_for
from fleet.runtimes.releases import package, wheel_for
from fleet.runtimes.select import Selection, select_files
from fleet.runtimes.store import RuntimeStore
from fleet.runtimes.targets import default_target, target_facts
from fleet.serving.files import packages_of, service_files


@dataclass(frozen=True)
class Parts:
    """What one kind of device gets."""

    target: str
    runtime: Runtime
    selection: Selection
    python: str | None = None  # 3.12: of devices whose runner brings packages for it


class Workbench:
    """Bundle and runtimes of a playbook; each target is resolved once, whatever the fleet."""

    def __init__(
        self,
        playbook: Playbook,
        store: RuntimeStore,
        listener: Listener,
        *,
        offline: bool = False,
        frozen: Lock | None = None,
    ) -> None:
        """`frozen` names the builds and files to take, whatever is newer; nothing is fetched."""
        self._frozen = frozen
        self.playbook = playbook
        self.runner: Runner = runner_of(playbook)
        self._store = store
        self._say = listener
        self._offline = offline
        self._lock = threading.Lock()
        self._parts: dict[tuple[str, str | None, str | None], Parts] = {}
        bundle = inspect_bundle(playbook.bundle, system_library(store), kind=playbook.bundle_kind)
        self.bundle: Bundle = with_op_packages(bundle, playbook.op_packages)
        for text in (*playbook.warnings, *self.bundle.warnings):
            listener(Warned("", text))

    def target_for(self, host: Host, facts: Facts) -> str:
        """Inventory, then playbook, then what the device's OS and machine call for."""
        fixed = host.target or self.playbook.runtime.target
        if fixed:
            return fixed
        chosen = default_target(facts.os_family, facts.machine or "")
        if chosen is None:
            raise InputError(
                f"no QAIRT target is known for {facts.os_family} on {facts.machine or 'unknown'}",
                hint="set `target:` in the inventory",
            )
        return chosen

    def python_of(self, facts: Facts) -> str | None:
        """`3.12` where the runner brings packages for the Python of the device, else None."""
        version = facts.tools.python3_version
        if not self.runner.python or version is None:
            return None
        return ".".join(version.split(".")[:2])

    def parts(self, target: str, arch: str | None, python: str | None = None) -> Parts:
        """Runtime and files for a target and Hexagon arch (`v73`; None when unknown)."""
        self._layout(target)  # before a runtime is fetched
        with self._lock:
            key = (target, arch, python)
            if key not in self._parts:
                locked = self._frozen.required(target, arch) if self._frozen else None
                if self.runner.runtime is None:
                    runtime = no_runtime(target)
                elif locked:
                    runtime = self._locked_runtime(target, locked)
                else:
                    runtime = self._runtime(target)
                selection = select_files(runtime, target, arch, self.runner.runtime)
                if locked is not None:
                    files = locked.only(selection.files)
                    tool = any(one.name.startswith("bin/") for one in files)
                    has_tool = selection.has_tool and tool
                    selection = replace(selection, files=files, has_tool=has_tool)
                self._parts[key] = Parts(target, runtime, selection, python)
            return self._parts[key]

    def kinds(self, target: str, arch: str | None, python: str | None = None) -> dict[Path, str]:
        """Host path of a file → its machine, `hexagon-v73` for code of the DSP; only known ones."""
        runtime = self.parts(target, arch, python).runtime
        found = {
            runtime.root / one.path: (
                f"hexagon-{one.hexagon_arch}" if one.machine == "hexagon" else one.machine
            )
            for one in runtime.libraries
            if one.machine != "other"
        }
        dsp = {one.name: one.hexagon_arch for one in self.bundle.contexts if one.hexagon_arch}
        shards = [one for one in self.bundle.files if one.name in dsp]
        ops = [one for package in self.bundle.op_packages for one in package.libraries]
        found |= {one.file.source: one.kind for one in ops}
        return found | {one.source: f"hexagon-{dsp[one.name]}" for one in shards}

    def _locked_runtime(self, target: str, locked: LockedRelease) -> Runtime:
        found = self._store.find(locked.build_id, target)
        if found is None:
            raise RuntimeStoreError(
                f"QAIRT {locked.build_id} for {target} is locked and not in the store; "
                "--frozen fetches nothing",
                hint=f"fleet runtime fetch {locked.build_id} --target {target}",
            )
        return found

    def _runtime(self, target: str) -> Runtime:
        version = self.playbook.runtime.version or self.bundle.qairt
        found = self._store.find(version, target)
        if found is not None:
            return found
        has_wheels = target_facts(target).wheel_machine is not None
        wheel = wheel_for(version) if version and has_wheels else None
        if wheel is None or not self.playbook.runtime.wheel:
            raise RuntimeStoreError(
                f"no QAIRT {version or 'runtime'} for {target} is in the store",
                hint=f"fleet runtime add <QAIRT SDK folder, zip or URL that has {target}>; "
                "fleet runtime list (what is there)",
            )
        self._say(StepStarted("", "fetch", f"QAIRT {version} for {target}"))
        runtime = self._store.fetch(
            f"{package()}=={wheel}", target=target, offline=self._offline, progress=self._progress
        )
        self._say(StepStarted("", "fetched", f"QAIRT {runtime.build_id} is in the store"))
        return runtime

    def _progress(self, doing: str, done: int, total: int | None) -> None:
        self._say(Progress("", doing, done, total or 0))

    def kit(self, run: RunSpec, *, has_tool: bool, target: str) -> Kit:
        """What the runner works with, for devices of a target."""
        with self._lock:
            roots = [one.runtime.root for one in self._parts.values() if one.target == target]
        return Kit(
            self.bundle,
            run,
            has_tool=has_tool,
            dsp=target_facts(target).kind != "emulator",
            windows=target_facts(target).os == "windows",
            runtime_root=roots[0] if roots else None,
        )

    def manifest(self, parts: Parts) -> Manifest:
        """The release for one kind of device."""
        pc = target_facts(parts.target).os == "windows"
        layout, packages = self._layout(parts.target), self.bundle.op_packages
        run = self.playbook.run or RunSpec(runner=self.runner.name)
        kit = self.kit(run, has_tool=parts.selection.has_tool, target=parts.target)
        kit = replace(kit, build_id=parts.runtime.build_id, site=self._site(parts))
        ops = op_package_files(packages, dsp=kit.dsp)
        bundle = [replace(one, name=f"bundle/{one.name}") for one in self.bundle.files]
        placed = [
            replace(one, name=layout.named(one.name))
            for one in (*parts.selection.files, *bundle, *ops)
        ]
        spec = self.playbook.serve
        served: tuple[FileRef, ...] = ()
        if spec is not None:
            served = (*service_files(), *packages_of(spec, self.bundle, kit.site))
        files = unique((*placed, *self.runner.files(kit), *served))
        if self._frozen is not None:
            arch = parts.selection.hexagon_arch
            files = self._frozen.required(parts.target, arch).only(files)
        return Manifest(
            name=self.playbook.name,
            files=files,
            env=(windows_environment if pc else environment)(RELEASE, layout.lib, layout.dsp),
            unset=("DSP_LIBRARY_PATH",),
            origin={
                "runtime": parts.runtime.id,
                "build_id": parts.runtime.build_id,
                "target": parts.target,
                "bundle": self.bundle.name,
                "runner": self.runner.name,
            }
            | self._health(kit)
            | ({"op_packages": [one.as_origin() for one in packages]} if packages else {}),
        )

    def _layout(self, target: str) -> Layout:
        """Where things are. Raises InputError for what is not done on Windows."""
        if target_facts(target).os != "windows":
            return self.runner.layout
        layout = self.runner.windows
        if layout is None or self.bundle.op_packages:
            what = "op packages" if layout is not None else f"runner {self.runner.name}"
            raise InputError(
                f"{what}: not done on Windows",
                hint="runners genie and ort are, without op packages: docs/windows.md",
            )
        return layout

    def _site(self, parts: Parts) -> Callable[[tuple[str, ...]], tuple[FileRef, ...]]:
        def files(requirements: tuple[str, ...]) -> tuple[FileRef, ...]:
            if parts.python is None:
                raise InputError(
                    f"runner {self.runner.name} needs python3, and the device has none",
                    hint="winget install Python.Python.3.12 --architecture arm64 on the device"
                    if target_facts(parts.target).os == "windows"
                    else "sudo apt install python3 on the device",
                )
            with self._lock:
                found = packages_for(
                    requirements,
                    parts.python,
                    parts.target,
                    offline=self._offline,
                    progress=self._progress,
                )
            return found.files

        return files

    def bring(self, plan: DevicePlan) -> None:
        """See that this machine has what a plan sends: a workstation has."""

    def _health(self, kit: Kit) -> dict[str, Any]:
        start = self.runner.health(kit, self.playbook.health_timeout)
        if start is None:
            return {}
        return {
            "health": health_as_dict(
                start.argv,
                start.cwd,
                config=start.config,
                timeout=start.timeout,
                prompt=start.prompt.decode("utf-8", "replace"),
                feeds_prompt=start.feeds_prompt,
                env=start.env,
            )
        }


def runner_of(playbook: Playbook) -> Runner:
    """The runner of the playbook, which can run that kind of bundle and likes its options."""
    kind = playbook.bundle_kind
    run = playbook.run or RunSpec(runner=DEFAULT_RUNNERS[kind])
    found = runner(run.runner)
    if kind not in found.kinds:
        fits = [name for name, one in OWN.items() if kind in one.kinds]
        raise PlaybookError(
            f"{playbook.path}: runner {run.runner} runs bundles of kind "
            f"{' or '.join(found.kinds)}, not {kind}",
            hint=f"`run: runner:` one of {', '.join(fits)}, or another `bundle: kind:`",
        )
    try:
        if playbook.run is not None:
            found.check(playbook.run)
    except InputError as error:
        raise PlaybookError(f"{playbook.path}: {error.message}", hint=error.hint) from error
    return found


def unique(files: tuple[FileRef, ...]) -> tuple[FileRef, ...]:
    """The same files; InputError when two different ones have one name in the release."""
    found: dict[str, FileRef] = {}
    for one in files:
        other = found.setdefault(one.name, one)
        if other.sha256 != one.sha256:
            raise InputError(
                f"two files for {one.name} in the release: {other.source} and {one.source}",
                hint="in a flat layout libraries, program and bundle share one folder: rename one",
            )
    return tuple(found.values())
