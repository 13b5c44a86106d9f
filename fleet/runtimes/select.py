"""The files of a runtime for a device, by target, Hexagon arch and runner."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from fleet.data import load
from fleet.model.errors import InputError, RuntimeStoreError
from fleet.model.files import FileRef
from fleet.model.runtime import Library, Runtime
from fleet.runtimes.targets import target_facts

_NO_ARCH = (
    "fleet cannot choose the stub and skel libraries, because the Hexagon arch of the device is "
    "unknown"
)
_OF_NPU = re.compile(r"Htp|Calculator|latform-?[Vv]alidator")


@dataclass(frozen=True)
class Selection:
    """The chosen files with release names: `lib/<name>`, `dsp/<name>`, `bin/<name>` (executable).

    `missing` are required files that the runtime lacks (runtime paths); any of them prevents a
    deploy. `has_tool` is True if the SDK's program is among the files; `tool` is its path on this
    machine. `required` are names of files without which a run cannot work. `arch_problem` is the
    reason if stub and skel could not be chosen. `npu`: the run uses the NPU.
    """

    target: str
    runner: str
    hexagon_arch: str | None
    files: tuple[FileRef, ...]
    missing: tuple[str, ...]
    has_tool: bool
    arch_problem: str = ""
    tool: Path | None = None
    required: tuple[str, ...] = ()
    npu: bool = True

    @property
    def size(self) -> int:
        """The size of all files in bytes."""
        return sum(item.size for item in self.files)


@dataclass(frozen=True)
class _Want:
    folder: str  # lib, dsp or bin
    pattern: str
    required: bool

    @property
    def of_npu(self) -> bool:
        """True if only an NPU session needs the files."""
        return self.folder == "dsp" or _OF_NPU.search(self.pattern) is not None


def runners() -> tuple[str, ...]:
    """Return the names of the runners in the table."""
    return tuple(load("runtime_files")["runners"])


def select_files(
    runtime: Runtime,
    target: str,
    hexagon_arch: str | None,
    runner: str | None = "genie",
    features: tuple[str, ...] = (),
    *,
    npu: bool = True,
) -> Selection:
    """Return the files that `runner` needs on a device of `target` with `hexagon_arch`.

    An unknown arch (None) gives all files except stub and skel, and `arch_problem`. An emulator
    target has no DSP and needs no arch. Runner None needs no files. `features` are rows of the
    table that a bundle or its options request. Without `npu`, HTP libraries are left out. Raises
    InputError, and RuntimeStoreError if the runtime does not have the target.
    """
    facts = target_facts(target)
    if runner is None:
        return Selection(target, "", hexagon_arch, (), (), has_tool=False, npu=npu)
    row = _row(runner, facts.kind, target)
    if target not in runtime.targets:
        raise RuntimeStoreError(
            f"the runtime {runtime.id} has no target {target} (only {', '.join(runtime.targets)})",
            hint=f"fleet runtime fetch {runtime.version} --target {target}",
        )
    unknown_arch = npu and facts.kind != "emulator" and hexagon_arch is None
    files: dict[str, FileRef] = {}
    missing, required = list[str](), set[str]()
    wants = _wants([row, *_features(features, facts.kind)], hexagon_arch)
    for want in (want for want in wants if npu or not want.of_npu):
        matching = _find(runtime, target, hexagon_arch, want)
        files |= {item.name: item for item in matching}
        required |= {item.name for item in matching if want.required}
        if want.required and not matching:
            missing.append(f"{_folder(target, hexagon_arch, want.folder)}{want.pattern}")
    tool = row["tool"]
    return Selection(
        target=target,
        runner=runner,
        hexagon_arch=hexagon_arch,
        files=tuple(files[name] for name in sorted(files)),
        missing=tuple(missing),
        has_tool=bool(tool) and f"bin/{tool}" in files,
        arch_problem=_NO_ARCH if unknown_arch else "",
        tool=files[f"bin/{tool}"].source if f"bin/{tool}" in files else None,
        required=tuple(sorted(required)),
        npu=npu,
    )


def _row(runner: str, kind: str, target: str) -> dict[str, Any]:
    table: dict[str, Any] | None = load("runtime_files")["runners"].get(runner)
    if table is None:
        raise InputError(f"'{runner}' is not a runner", hint="use one of: " + ", ".join(runners()))
    if kind not in table:
        raise InputError(
            f"runner {runner} does not run on the QAIRT target {target}",
            hint="choose another runner: fleet config runners (lists what each needs)",
        )
    return {"tool": table["tool"], "tool_required": table["tool_required"], **table[kind]}


def _features(names: tuple[str, ...], kind: str) -> list[dict[str, Any]]:
    table = load("runtime_files")["features"]
    return [table[name][kind] for name in names if kind in table.get(name, {})]


def _wants(rows: list[dict[str, Any]], arch: str | None) -> Iterator[_Want]:
    row = rows[0]
    for key in ("required", "optional"):
        for folder, patterns in (item for row in rows for item in row.get(key, {}).items()):
            for pattern in patterns:
                if "{A}" not in pattern:
                    yield _Want(folder, pattern, key == "required")
                elif arch is not None:
                    digits = arch.removeprefix("v").upper()
                    yield _Want(folder, pattern.replace("{A}", digits), key == "required")
    if row["tool"]:
        yield _Want("bin", row["tool"], row["tool_required"])


def _find(runtime: Runtime, target: str, arch: str | None, want: _Want) -> list[FileRef]:
    folder = _folder(target, arch, want.folder)
    return [
        _ref(runtime, item, want.folder)
        for item in runtime.libraries
        if item.path == f"{folder}{item.name}" and fnmatchcase(item.name, want.pattern)
    ]


def _folder(target: str, arch: str | None, folder: str) -> str:
    return f"lib/hexagon-{arch}/unsigned/" if folder == "dsp" else f"{folder}/{target}/"


def _ref(runtime: Runtime, item: Library, folder: str) -> FileRef:
    return FileRef(
        source=runtime.root / item.path,
        name=f"{folder}/{item.name}",
        size=item.size,
        sha256=item.sha256,
        executable=folder == "bin",
    )
