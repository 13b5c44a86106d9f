"""The store of QAIRT runtimes on the host: one folder per build, `qairt-<build id>/`."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from fleet.model.errors import InputError, RuntimeStoreError
from fleet.model.files import sha256_file
from fleet.model.home import fleet_home
from fleet.model.runtime import Runtime, RuntimeSource, same_build, version_key
from fleet.runtimes import download, layout, manifest, merge, pip
from fleet.runtimes.consistency import build_of, require_consistent
from fleet.runtimes.layout import Layout
from fleet.runtimes.lock import file_lock
from fleet.runtimes.progress import Progress, silent
from fleet.runtimes.spec import DEFAULT_SPEC, WheelSpec, parse_spec
from fleet.runtimes.stage import fill, stage_folder
from fleet.runtimes.targets import target_facts
from fleet.runtimes.tree import FolderTree, Tree, ZipTree, open_zip

_LOCK_SECONDS = 120.0  # a commit renames and writes one small file; 2 minutes means it hangs


def default_root() -> Path:
    """`$FLEET_HOME/runtimes`; see `fleet.model.home`."""
    return fleet_home() / "runtimes"


class RuntimeStore:
    """Runtimes under `root`. Several processes may use one store.

    A runtime is visible once its `runtime.json` is there, which is written last.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = root if root is not None else default_root()

    def list(self) -> tuple[Runtime, ...]:
        """All runtimes whose record can be read, newest first; files are not checked."""
        found = []
        for folder in self._folders():
            try:
                found.append(manifest.read(folder))
            except RuntimeStoreError:
                continue  # `problems` reports it; the others stay usable
        return tuple(sorted(found, key=lambda item: version_key(item.build_id), reverse=True))

    def problems(self) -> tuple[str, ...]:
        """What is wrong with the store, one sentence each; () when all is well."""
        found: list[str] = []
        for folder in self._folders():
            try:
                runtime = manifest.read(folder)
            except RuntimeStoreError as error:
                found.append(error.message)
            else:
                found += [f"{runtime.id}: {text}" for text in manifest.damaged(runtime)]
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
            f"no runtime '{name}' in {self.root}",
            hint=f"the store has: {have}; add one with: fleet runtime add or fetch",
        )

    def find(self, version: str | None, target: str) -> Runtime | None:
        """The newest runtime with this target, of this version or build id when one is given.

        None when there is none; RuntimeStoreError when it is there and damaged.
        """
        runtime = self._lookup(version, target)
        return None if runtime is None else self.verify(runtime)

    def verify(self, runtime: Runtime, *, deep: bool = False) -> Runtime:
        """Check that every file is there with its size (`deep`: and its SHA-256).

        Raises RuntimeStoreError naming the file and the command that repairs it.
        """
        found = manifest.damaged(runtime, deep=deep)
        if found:
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            raise RuntimeStoreError(
                f"runtime {runtime.id} is damaged: {found[0]}{more}", hint=_repair(runtime)
            )
        return runtime

    def add(
        self,
        path_or_url: str | Path,
        *,
        sha256: str | None = None,
        targets: Collection[str] = (),
        progress: Progress | None = None,
    ) -> Runtime:
        """Add an SDK folder, an SDK zip, a wheel, or one of these by URL (`sha256` required).

        `targets` limits what is taken of an SDK; by default all Linux and Android targets.
        The result says with `changed` whether the store changed: adding the same again does
        not. Raises InputError, or RuntimeStoreError for what is damaged, mixed or hostile.
        """
        tell = progress or silent
        text = str(path_or_url)
        if "://" in text:
            return self._add_url(text, sha256, targets, tell)
        path = Path(path_or_url).expanduser()
        if path.is_dir():
            if sha256:
                raise InputError("a folder has no --sha256", hint="give the zip, or leave it out")
            root = _sdk_root(path)
            tree = FolderTree(root)
            source = RuntimeSource("sdk-folder", str(path.resolve()))
            return self._add_tree(tree, layout.sdk_layout(tree, targets), source, tell)
        if not path.is_file():
            raise InputError(f"{path} does not exist", hint="give an SDK folder, a zip or a wheel")
        return self._add_file(path, path.name, sha256, targets, tell)

    def fetch(
        self,
        spec: str = DEFAULT_SPEC,
        *,
        target: str,
        progress: Progress | None = None,
        offline: bool = False,
    ) -> Runtime:
        """The runtime of a wheel (`onnxruntime-qnn==2.7.0`) or QAIRT version (`2.51.0`).

        What is in the store is not fetched again. With `offline` the network is never used.
        Raises RuntimeStoreError when it cannot be had, naming the command that gets it.
        """
        facts = target_facts(target)
        wheel = parse_spec(spec)
        known = self._of_wheel(wheel, target, offline=offline)
        if known is not None and not manifest.damaged(known):
            return known
        if offline:
            raise RuntimeStoreError(
                f"{wheel.label} for {target} is not in {self.root}, and offline nothing is fetched",
                hint=f"with a network: fleet runtime fetch {spec} --target {target}",
            )
        if not wheel.requirement:
            raise RuntimeStoreError(
                f"no wheel that fleet knows holds {wheel.label}",
                hint=f"add its SDK: fleet runtime add SDK.zip --target {target}",
            )
        if not facts.wheel_platforms:
            raise RuntimeStoreError(
                f"no wheel holds QAIRT for {target}",
                hint=f"get the SDK from Qualcomm: fleet runtime add SDK.zip --target {target}",
            )
        return self._fetch_wheel(wheel, target, progress or silent)

    def remove(self, name: str) -> Runtime | None:
        """Delete a runtime by id, build id or version; damaged ones too.

        Returns what was removed, None when its record was unreadable. InputError for none.
        """
        with file_lock(self.root / ".lock", _LOCK_SECONDS):
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
            elif folder not in self._folders():
                raise InputError(f"no runtime '{name}' in {self.root}", hint="fleet runtime list")
            trash = Path(tempfile.mkdtemp(prefix=".stage-", dir=self.root))
            folder.rename(trash / "runtime")
        shutil.rmtree(trash)
        return runtime

    def _folders(self) -> tuple[Path, ...]:
        return tuple(sorted(self.root.glob("qairt-*")))

    def _lookup(self, version: str | None, target: str) -> Runtime | None:
        for runtime in self.list():
            fits = version is None or same_build(runtime.build_id, version)
            if fits and target in runtime.targets:
                return runtime
        return None

    def _of_wheel(self, wheel: WheelSpec, target: str, *, offline: bool) -> Runtime | None:
        if wheel.latest and not offline:
            return None  # only the index knows what the newest is
        if wheel.qairt or wheel.latest:
            return self._lookup(wheel.qairt, target)
        for runtime in self.list():
            for source in runtime.sources:
                if source.name.startswith(wheel.file_prefix) and target in source.provides:
                    return runtime
        return None

    def _fetch_wheel(self, wheel: WheelSpec, target: str, progress: Progress) -> Runtime:
        platforms = target_facts(target).wheel_platforms
        with stage_folder(self.root) as folder:
            path = pip.download(wheel.requirement, platforms, folder, progress)
            runtime = self._add_file(path, path.name, None, (target,), progress)
        if wheel.qairt and not same_build(runtime.build_id, wheel.qairt):
            raise RuntimeStoreError(
                f"{wheel.requirement} holds QAIRT {runtime.build_id}, not {wheel.qairt}",
                hint=f"it is in the store as {runtime.id}",
            )
        return runtime

    def _add_url(
        self, url: str, sha256: str | None, targets: Collection[str], progress: Progress
    ) -> Runtime:
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
                f"{path} has the SHA-256 {digest}, not {sha256.lower()}",
                hint="download it again, or check the number",
            )
        with open_zip(path) as archive:
            tree, files, kind = _read_archive(archive, name, targets)
            known = self._of_source(digest)
            groups = {layout.group_of(item) for item in files} - {""}
            if known is not None and groups <= _provided(known, digest):
                return known
            return self._add_tree(tree, files, RuntimeSource(kind, name, digest), progress)

    def _add_tree(
        self, tree: Tree, files: Layout, source: RuntimeSource, progress: Progress
    ) -> Runtime:
        with stage_folder(self.root) as folder:
            libraries = fill(tree, files, folder, progress)
            require_consistent(libraries, source.name)
            witness = build_of(libraries)
            if witness is None or witness.build_id is None:
                raise RuntimeStoreError(
                    f"no file of {source.name} says which QAIRT build it is",
                    hint="give a QAIRT SDK of 2.25 or later, or an onnxruntime-qnn wheel",
                )
            groups = sorted({layout.group_of(item.path) for item in libraries})
            source = replace(source, provides=tuple(groups))
            staged = manifest.make(witness.build_id, folder, (source,), libraries)
            with file_lock(self.root / ".lock", _LOCK_SECONDS):
                return merge.commit(staged, self.root)

    def _of_source(self, digest: str) -> Runtime | None:
        """The undamaged runtime that this very file was added to."""
        for runtime in self.list():
            if any(item.sha256 == digest for item in runtime.sources):
                return None if manifest.damaged(runtime) else runtime
        return None


def _provided(runtime: Runtime, digest: str) -> set[str]:
    return {group for item in runtime.sources if item.sha256 == digest for group in item.provides}


def _read_archive(
    archive: ZipTree, name: str, targets: Collection[str]
) -> tuple[ZipTree, Layout, str]:
    names = archive.sizes()
    if not any(member.startswith("onnxruntime_qnn/") for member in names):
        tree = archive.below(layout.sdk_prefix(names, name))
        return tree, layout.sdk_layout(tree, targets), "sdk-zip"
    files = layout.wheel_layout(archive, name)
    have = layout.targets_of(files)
    if targets and not set(targets) <= set(have):
        raise InputError(
            f"the wheel {name} is for {', '.join(have)}, not {', '.join(sorted(targets))}",
            hint="leave --target out, or fetch the other one",
        )
    return archive, files, "wheel"


def _sdk_root(path: Path) -> Path:
    """The folder with lib/ and bin/: `path`, or the only SDK in it (`qairt/<version>`)."""
    below = (path, *sorted(path.glob("*")), *sorted(path.glob("qairt/*")))
    roots = [item for item in below if any(item.glob("lib/*/*QnnHtp.[sd][ol]*"))]
    if len(roots) == 1 or (roots and roots[0] == path):
        return roots[0]
    layout.sdk_prefix((f"{item.name}/lib/x/libQnnHtp.so" for item in roots), str(path))
    return path


def _repair(runtime: Runtime) -> str:
    source = runtime.source
    if source.kind == "wheel":
        target = next((item for item in source.provides if item in runtime.targets), "TARGET")
        return f"fleet runtime fetch {runtime.version} --target {target}"
    return f"fleet runtime add {source.name}"
