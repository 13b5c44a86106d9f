"""The release builder of a worker: what the workstation resolved, with files of this machine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fleet.engine.cluster.blobs import Blobs
from fleet.engine.cluster.wire import DeviceKind, Order, blobs_of
from fleet.engine.release_builder import ReleaseBuilder, runner_of
from fleet.engine.resolver import Parts
from fleet.model.events import Listener
from fleet.model.files import FileRef
from fleet.model.manifest import Manifest
from fleet.model.plan import DevicePlan
from fleet.model.playbook import RunSpec
from fleet.runners import Kit
from fleet.runtimes.targets import target_facts

AskKind = Callable[[str, str | None, str | None], DeviceKind]
Fetch = Callable[[str, dict[str, tuple[int, Path]]], None]


class RemoteBuilder(ReleaseBuilder):
    """Reads neither bundle nor runtimes: the workstation did, once for the whole fleet.

    `ask_kind` waits for its answer and raises its FleetError; `fetch` waits until blobs are on
    this machine. Files of a manifest have paths of this machine's Blobs, there or not yet.
    """

    def __init__(
        self, order: Order, say: Listener, blobs: Blobs, ask_kind: AskKind, fetch: Fetch
    ) -> None:
        if order.playbook is None or order.bundle is None:
            raise ValueError("a remote job without a playbook cannot build a release")
        self.playbook = order.playbook
        self.runner = runner_of(order.playbook)
        self.bundle = order.bundle
        self._say = say
        self._blobs = blobs
        self._ask = ask_kind
        self._fetch = fetch
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str | None, str | None], DeviceKind] = {}
        self._origins: dict[str, Path] = {}

    def parts(self, target: str, arch: str | None, python: str | None = None) -> Parts:
        """See ReleaseBuilder; asked once a process."""
        return self._kind(target, arch, python).parts

    def manifest(self, parts: Parts) -> Manifest:
        """See ReleaseBuilder."""
        return next(kind.manifest for kind in self._known.values() if kind.parts is parts)

    def kinds(self, target: str, arch: str | None, python: str | None = None) -> dict[Path, str]:
        """See ReleaseBuilder."""
        return dict(self._kind(target, arch, python).kinds)

    def kit(self, run: RunSpec, *, has_tool: bool, target: str) -> Kit:
        """See ReleaseBuilder; there is no SDK on a worker."""
        dsp = target_facts(target).kind == "device"
        return Kit(self.bundle, run, has_tool=has_tool, dsp=dsp)

    def bring(self, plan: DevicePlan) -> None:
        """What the plan sends is on this machine when this returns."""
        lacking = {
            sha: (size, self._origins[sha])
            for sha, size in blobs_of(plan).items()
            if not self._blobs.has(sha, size)
        }
        if lacking:
            self._fetch(plan.host.name, lacking)

    def _kind(self, target: str, arch: str | None, python: str | None) -> DeviceKind:
        with self._lock:
            key = (target, arch, python)
            if key not in self._known:
                self._known[key] = self._here(self._ask(*key))
            return self._known[key]

    def _here(self, kind: DeviceKind) -> DeviceKind:
        """The same with paths of this machine; where they come from is kept."""
        paths: dict[Path, Path] = {}

        def moved(item: FileRef) -> FileRef:
            self._origins[item.sha256] = item.source
            paths[item.source] = self._blobs.path(item.sha256)
            return replace(item, source=paths[item.source])

        manifest = replace(kind.manifest, files=tuple(moved(item) for item in kind.manifest.files))
        names = {paths[path]: word for path, word in kind.kinds.items() if path in paths}
        return DeviceKind(kind.parts, manifest, names)
