"""The values that all devices of one playbook share on the host: bundle, runtimes, file lists."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleet.bundles.closure import (
    Launch,
    OpenedFiles,
    SentFiles,
    device_programs,
    foreign,
    linked_files,
    unsent,
)
from fleet.bundles.inspect import inspect_bundle
from fleet.bundles.op_packages import op_package_files, with_op_packages
from fleet.bundles.ort import untaken
from fleet.bundles.system_library import system_library
from fleet.config.runners import default_runner
from fleet.engine.deploy.resolver import Parts, Resolver, WantedRuntime
from fleet.model.bundle import Bundle
from fleet.model.errors import InputError, PlaybookError
from fleet.model.events import Listener, Progress, Warned
from fleet.model.facts import Facts
from fleet.model.files import FileRef
from fleet.model.inventory import Host
from fleet.model.lockfile import Lock
from fleet.model.manifest import RELEASE, Manifest
from fleet.model.plan import DevicePlan
from fleet.model.playbook import Playbook, RunSpec
from fleet.ops.environment import environment, windows_environment
from fleet.runners import Defaults, Kit, Layout, Runner
from fleet.runners.exec import ExecRunner, uses_qairt
from fleet.runners.options import OwnProgram
from fleet.runners.registry import OWN, RUNTIME, runner
from fleet.runtimes.programs import bring_program
from fleet.runtimes.store import RuntimeStore
from fleet.runtimes.targets import default_target, target_facts
from fleet.serving.files import added_files, service_files


class Builder(ABC):
    """The interface of a deploy to the release of a playbook, on workstations and on workers."""

    def __init__(self, playbook: Playbook, chosen: Runner, bundle: Bundle) -> None:
        self.playbook, self.runner, self.bundle = playbook, chosen, bundle

    def target_for(self, host: Host, facts: Facts) -> str:
        """Return the target of the inventory, else of the playbook, else the default for OS and
        machine.

        Raises InputError if there is no target for them.
        """
        fixed = host.target or self.playbook.runtime.target
        if fixed:
            return fixed
        chosen = default_target(facts.os_family, facts.machine or "")
        if chosen is None:
            raise InputError(
                f"fleet knows no QAIRT target for {facts.os_family} on "
                f"{facts.machine or 'an unknown CPU'}",
                hint="set `target:` of this device in the inventory to the folder below lib/ of "
                "your QAIRT SDK that fits it; if no folder fits, QAIRT does not support "
                "the device",
            )
        return chosen

    def python_of(self, facts: Facts) -> str | None:
        """Return a version like `3.12` if the runner brings packages for that Python, else None."""
        version = facts.tools.python3_version
        if not self.runner.python or version is None:
            return None
        return ".".join(version.split(".")[:2])

    def kit(self, run: RunSpec, *, has_tool: bool, target: str) -> Kit:
        """Return the runner's input; `has_tool`: the runtime brings the runner's program."""
        return Kit(
            self.bundle,
            run,
            has_tool=has_tool,
            dsp=target_facts(target).kind != "emulator",
            windows=target_facts(target).os == "windows",
            runtime_root=self._runtime_root(target),
        )

    def _runtime_root(self, target: str) -> Path | None:  # noqa: ARG002
        """Return the folder of the QAIRT runtime on this machine, None if it is not here."""
        return None

    @abstractmethod
    def parts(self, target: str, arch: str | None, python: str | None = None) -> Parts:
        """Return the runtime and files for a Hexagon arch (`v73`) or, with None, any arch."""

    @abstractmethod
    def kinds(self, target: str, arch: str | None, python: str | None = None) -> dict[Path, str]:
        """Return host path → machine of the files with a known machine, `hexagon-v73` for DSP
        code.
        """

    @abstractmethod
    def manifest(self, parts: Parts) -> Manifest:
        """Return the release for one kind of device."""

    @abstractmethod
    def opened(self, parts: Parts, manifest: Manifest) -> OpenedFiles:
        """Return the files that the starts with `parts` open and `manifest` does not have."""

    @abstractmethod
    def corrected(self, parts: Parts) -> tuple[str, ...]:
        """Return the names of the files of the bundle that the runner corrects for `parts`."""

    @abstractmethod
    def bring(self, plan: DevicePlan) -> None:
        """Make sure that the files of a plan are on this machine."""


class ReleaseBuilder(Builder):
    """The bundle and the runtimes of a playbook; each target is resolved once for all devices."""

    def __init__(
        self,
        playbook: Playbook,
        store: RuntimeStore,
        listener: Listener,
        *,
        offline: bool = False,
        frozen: Lock | None = None,
    ) -> None:
        """Inspect the bundle and prepare the runtimes.

        `frozen` names the builds and files to use, even if newer ones exist; nothing is fetched
        then, nor with `offline`.
        """
        self._frozen = frozen
        self._lock = threading.Lock()
        self._opened: dict[tuple[str, str | None, str | None], OpenedFiles] = {}

        def progress(doing: str, done: int, total: int | None) -> None:
            listener(Progress("", doing, done, total or 0))

        for user in (playbook.run, playbook.serve):
            bring_program(user, progress, offline=offline or frozen is not None)
        chosen = runner_of(playbook)
        bundle = inspect_bundle(
            playbook.bundle,
            system_library(store),
            kind=playbook.bundle_kind,
            config=playbook.bundle_config,
        )
        super().__init__(playbook, chosen, with_op_packages(bundle, playbook.op_packages))
        self._resolver = Resolver(
            self.runner,
            store,
            listener,
            WantedRuntime(
                features=features_of(self.runner, self.bundle, playbook.run),
                npu=self._uses_npu(),
                version=playbook.runtime.version or self.bundle.qairt,
                wheel=playbook.runtime.wheel,
                offline=offline,
                frozen=frozen,
                carried=self._carried(),
            ),
        )
        for text in (*playbook.warnings, *self.bundle.warnings):
            listener(Warned("", text))

    def _carried(self) -> Path | None:
        run = self.playbook.run
        if run is None or not isinstance(self.runner, Defaults):
            return None
        return self.runner.carried_qairt(run)

    def _uses_npu(self) -> bool:
        run = self.playbook.run or RunSpec(runner=self.runner.name)
        return not isinstance(self.runner, Defaults) or self.runner.uses_npu(self.bundle, run)

    def own_files(self, parts: Parts) -> tuple[Path, ...]:
        """Return the host paths of the user's programs and libraries that are deployed."""
        run = self.playbook.run
        if run is None:
            return ()
        if isinstance(self.runner, OwnProgram):
            return tuple(item.source for item in self.runner.files(self._kit_of(parts)))
        return (*filter(None, [run.program]), *run.libraries)

    def _runtime_root(self, target: str) -> Path | None:
        return self._resolver.root(target)

    def parts(self, target: str, arch: str | None, python: str | None = None) -> Parts:
        """Return the runtime and files, and fetch a missing runtime; see Builder."""
        layout_of(self.runner, self.bundle, target)  # before a runtime is fetched
        return self._resolver.parts(target, arch, python)

    def kinds(self, target: str, arch: str | None, python: str | None = None) -> dict[Path, str]:
        """Return host path → machine of libraries, shards and op packages; see Builder."""
        runtime = self.parts(target, arch, python).runtime
        kinds = {
            runtime.root / library.path: (
                f"hexagon-{library.hexagon_arch}"
                if library.machine == "hexagon"
                else library.machine
            )
            for library in runtime.libraries
            if library.machine != "other"
        }
        dsp = {
            context.name: context.hexagon_arch
            for context in self.bundle.contexts
            if context.hexagon_arch
        }
        shards = [item for item in self.bundle.files if item.name in dsp]
        ops = [library for package in self.bundle.op_packages for library in package.libraries]
        kinds |= {library.file.source: library.kind for library in ops}
        return kinds | {shard.source: f"hexagon-{dsp[shard.name]}" for shard in shards}

    def manifest(self, parts: Parts) -> Manifest:
        """Return the release for one kind of device; see Builder."""
        pc = target_facts(parts.target).os == "windows"
        packages = self.bundle.op_packages
        layout = layout_of(self.runner, self.bundle, parts.target)
        kit = self._kit_of(parts)
        ops = op_package_files(packages, dsp=kit.dsp)
        bundle = [replace(item, name=f"bundle/{item.name}") for item in self._files(kit)]
        placed = [
            replace(item, name=layout.named(item.name))
            for item in (*parts.selection.files, *bundle, *ops)
        ]
        spec = self.playbook.serve
        served: tuple[FileRef, ...] = ()
        if spec is not None:
            chat = spec.template is not None
            served = (*service_files(chat=chat), *added_files(spec, kit))
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
            | ({} if parts.selection.npu else {"npu": False})
            | ({"op_packages": [package.as_origin() for package in packages]} if packages else {}),
        )

    def launches(self, parts: Parts) -> tuple[Launch, ...]:
        """Return the starts of the health probe and of the run, if any, with `parts`.

        Raises InputError for a start that the runner does not support.
        """
        kit = self._kit_of(parts)
        starts = [self.runner.health(kit, self.playbook.health_timeout)]
        if self.playbook.run is not None:
            starts.append(self.runner.start(kit))
        return tuple(
            Launch(start.argv, start.env, start.cwd, start.config) for start in starts if start
        )

    def opened(self, parts: Parts, manifest: Manifest) -> OpenedFiles:
        """Return the opened files, determined once for each kind of device; see Builder."""
        key = (parts.target, parts.selection.hexagon_arch, parts.python)
        with self._lock:
            if key not in self._opened:
                launches, release = self.launches(parts), self.release(parts, manifest)
                others, asked = foreign(self.bundle, release, launches)
                findings = unsent(self.bundle, release, launches)
                findings = (*findings, *others, *untaken(self.bundle, launches))
                own = self.runner.name == "exec"
                programs = device_programs(launches) if own else ()
                tool = filter(None, [parts.selection.tool])
                own_files = linked_files((*tool, *self.own_files(parts)))
                self._opened[key] = OpenedFiles(findings, asked, programs, own_files)
            return self._opened[key]

    def release(self, parts: Parts, manifest: Manifest) -> SentFiles:
        """Return the release in the form that the check of opened files needs."""
        layout = layout_of(self.runner, self.bundle, parts.target)
        required = tuple(layout.named(name) for name in parts.selection.required)
        if isinstance(self.runner, Defaults):
            required += self.runner.opens(self._kit_of(parts))
        pc = target_facts(parts.target).os == "windows"
        return SentFiles(manifest.files, layout.bundle, required, windows=pc)

    def corrected(self, parts: Parts) -> tuple[str, ...]:
        """Return the names of the files of the bundle that the runner corrects."""
        if not isinstance(self.runner, Defaults):
            return ()
        return tuple(item.name for item in self.runner.corrected(self._kit_of(parts)))

    def _kit_of(self, parts: Parts) -> Kit:
        run = self.playbook.run or RunSpec(runner=self.runner.name)
        kit = self.kit(run, has_tool=parts.selection.has_tool, target=parts.target)
        arch, site = parts.selection.hexagon_arch or "", self._resolver.site(parts)
        return replace(kit, build_id=parts.runtime.build_id, arch=arch, site=site)

    def bring(self, plan: DevicePlan) -> None:
        """Do nothing: a workstation has all files of a plan; see Builder."""

    def _files(self, kit: Kit) -> Iterator[FileRef]:
        """Yield each file of the bundle, or the runner's corrected version of the file."""
        corrected = self.runner.corrected(kit) if isinstance(self.runner, Defaults) else ()
        others = {item.name: item for item in corrected}
        return (others.get(item.name, item) for item in self.bundle.files)

    def _health(self, kit: Kit) -> dict[str, Any]:
        """Return the health probe for the manifest, so that a rollback needs no bundle here.

        `prompt` is written to prompt.txt in the work folder. It is also standard input, unless
        `feeds_prompt` is False.
        """
        start = self.runner.health(kit, self.playbook.health_timeout)
        if start is None:
            return {}
        keys = ("argv", "cwd", "config", "timeout")
        health = {key: getattr(start, key) for key in keys} | {"argv": list(start.argv)}
        if start.prompt:
            health["prompt"] = start.prompt.decode("utf-8", "replace")
            health |= {} if start.feeds_prompt else {"feeds_prompt": False}
        return {"health": health | ({"env": dict(start.env)} if start.env else {})}


def features_of(runner: Runner, bundle: Bundle, run: RunSpec | None) -> tuple[str, ...]:
    """Return the keys below `features` in runtime_files.yaml that this bundle needs."""
    if not isinstance(runner, Defaults):
        return ()
    return runner.features(bundle, run or RunSpec(runner=runner.name))


def layout_of(runner: Runner, bundle: Bundle, target: str) -> Layout:
    """Return the layout of the release.

    Raises InputError for features without support on Windows.
    """
    if target_facts(target).os != "windows":
        return runner.layout
    layout = runner.windows
    if layout is None or bundle.op_packages:
        what = "op packages" if layout is not None else f"runner {runner.name}"
        raise InputError(
            f"fleet does not support {what} on Windows",
            hint="use the runner genie or ort, without op packages; see docs/windows.md",
        )
    return layout


def runner_of(playbook: Playbook) -> Runner:
    """Return the runner of the playbook.

    Raises PlaybookError if it cannot run this kind of bundle, or rejects its options.
    """
    kind = playbook.bundle_kind
    if kind == "runtime":
        return RUNTIME
    run = playbook.run or RunSpec(runner=default_runner(kind, playbook.bundle))
    selected = runner(run.runner)
    if kind not in selected.kinds:
        fits = [name for name, own in OWN.items() if kind in own.kinds]
        raise PlaybookError(
            f"{playbook.path}: the bundle kind is {kind}, but the runner {run.runner} runs only "
            f"{' or '.join(selected.kinds)} bundles",
            hint=f"set `run: runner:` to {' or '.join(fits)}, or correct `bundle: kind:`",
        )
    try:
        if playbook.run is not None:
            selected.check(playbook.run)
    except InputError as error:
        raise PlaybookError(f"{playbook.path}: {error.message}", hint=error.hint) from error
    if isinstance(selected, ExecRunner) and (
        playbook.runtime.none or (playbook.runtime.version is None and not uses_qairt(run))
    ):
        return selected.without_qairt()
    if playbook.runtime.none and selected.runtime is not None:
        raise PlaybookError(
            f"{playbook.path}: the playbook says `runtime: none`, but the runner {run.runner} "
            "needs QAIRT",
            hint="remove `runtime: none` from the playbook, or set `run: runner: exec`",
        )
    return selected.fitted(run) if isinstance(selected, Defaults) else selected


def unique(files: tuple[FileRef, ...]) -> tuple[FileRef, ...]:
    """Return the files without repetitions.

    Raises InputError if two different files have one name.
    """
    by_name: dict[str, FileRef] = {}
    for item in files:
        other = by_name.setdefault(item.name, item)
        if other.sha256 != item.sha256:
            raise InputError(
                f"two different files have the name {item.name} in the release: {other.source} and "
                f"{item.source}",
                hint="rename one of the two files: libraries, program and bundle are deployed "
                "to one folder",
            )
    return tuple(by_name.values())
