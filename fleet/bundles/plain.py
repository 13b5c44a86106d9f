"""Bundles without a configuration of their own: qnn, mllm, executorch, llama.cpp, files."""

from __future__ import annotations

import os
import stat
from fnmatch import fnmatchcase
from pathlib import Path

from fleet.bundles.context import inspect_context
from fleet.bundles.found import Found, check_sums, qairt_of
from fleet.bundles.paths import inside, refuse_case_twins
from fleet.content.hashes import HashCache, ref
from fleet.model.bundle import Bundle
from fleet.model.errors import BundleError

# kind → what it must have, and which of its files are context binaries.
# docs/sources/deployment.md 4.
_MODELS = {
    "qnn": (("*.bin", "*.dlc"), "*.bin"),
    "mllm": (("*.bin", "*.mllm"), "*.bin"),
    "executorch": (("*.pte",), ""),
    "llama.cpp": (("*.gguf",), ""),
    "ort": (("*.onnx",), "*.bin"),
    "files": ((), ""),
}
KINDS = ("genie", *_MODELS)


def inspect_plain(root: Path, system_library: Path | None, kind: str, *, hashes: bool) -> Bundle:
    """All files of a folder. Raises BundleError: no folder, no model, a link that leads out."""
    models, contexts_like = _MODELS[kind]
    found = Found(root)
    try:
        for name in _names(root):
            path = inside(root, name, "the bundle")
            if path is not None and path.is_file():
                found.paths[name] = path
        refuse_case_twins(sorted(found.paths))
        if models and not any(_like(name, models) for name in found.paths):
            have = ", ".join(sorted(found.paths)[:12]) or "nothing"
            raise BundleError(
                f"{root} is no bundle of kind {kind}: no {' or '.join(models)} (it has: {have})",
                hint="correct `bundle: kind:` or the folder",
            )
        cache = HashCache()
        files = tuple(ref(name, path, cache, hashes) for name, path in found.paths.items())
        contexts = tuple(
            inspect_context(one.source, system_library, name=one.name, sha256=one.sha256)
            for one in files
            if contexts_like and fnmatchcase(one.name, contexts_like)
        )
    except OSError as error:
        raise BundleError(f"cannot read the bundle: {error}", hint="check its rights") from error
    cache.save()
    wrong, checked = check_sums(files, found) if hashes else ((), "")
    qairt, source = qairt_of(found, contexts)
    return Bundle(
        kind=kind,
        name=root.name,
        root=root,
        config_name="",
        config={},
        backend=None,
        extensions={},
        qairt=qairt,
        qairt_source=source,
        contexts=contexts,
        files=tuple(sorted(files, key=lambda item: item.name)),
        missing=(),
        warnings=tuple(found.warnings),
        wrong_hashes=wrong,
        checked_by=checked,
    )


def _like(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _names(root: Path) -> list[str]:
    if not root.is_dir():
        raise BundleError(f"{root} is no folder", hint="give the folder of the bundle")
    found = []
    for parent, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in folders:
            if (Path(parent) / name).is_symlink():  # not followed; out of the bundle: refused
                inside(root, (Path(parent) / name).relative_to(root).as_posix(), "the bundle")
        for path in (Path(parent) / name for name in sorted(names) if not name.startswith(".")):
            _refuse_special(path)
            found.append(path.relative_to(root).as_posix())
    return found


def _refuse_special(path: Path) -> None:
    """A pipe would be waited for, and a device node has no end."""
    kind = path.lstat().st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISLNK(kind)):
        raise BundleError(
            f"{path} is no file but a pipe, socket or device node",
            hint="remove it from the bundle",
        )
