"""Bundles without a configuration of their own: all files of a folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from fleet.bundles.content import file_content
from fleet.bundles.context import inspect_context
from fleet.bundles.ep.genai import GENAI
from fleet.bundles.found import Found, check_sums, qairt_of
from fleet.bundles.gguf import missing_parts
from fleet.bundles.paths import inside, refuse_case_twins
from fleet.content.hashes import HashCache, ref
from fleet.model.bundle import KINDS, Bundle, FileContent, MissingFile
from fleet.model.errors import BundleError
from fleet.model.files import FileRef


def inspect_plain(root: Path, system_library: Path | None, kind: str, *, hashes: bool) -> Bundle:
    """Return the bundle with all files of a folder. Without `hashes` every sha256 is empty.

    Raises BundleError for a missing folder, for a folder without a model, and for a link that leads
    out of the folder.
    """
    models, contexts_like = KINDS[kind].models, KINDS[kind].contexts

    def collect(contents: Found) -> list[str]:
        for name in _names(root):
            path = inside(root, name, "the bundle")
            if path is not None and path.is_file():
                contents.paths[name] = path
        named = any(_like(name, models) for name in contents.paths) or (
            kind == "ort" and GENAI in contents.paths  # its models are missing, each by its name
        )
        if models and not named:
            have = ", ".join(sorted(contents.paths)[:12]) or "nothing"
            raise BundleError(
                f"{root} is not a bundle of kind {kind}: the folder has no "
                f"{' or '.join(models)} (only: {have})",
                hint="correct `kind:` or `path:` under `bundle:` in the playbook",
            )
        contents.missing += [MissingFile(*pair) for pair in missing_parts(contents.paths)]
        contents.missing += [
            MissingFile(pattern, f"the runner {kind} (its {what})")
            for what, pattern in KINDS[kind].needs
            if not any(_like(name, (pattern,)) for name in contents.paths)
        ]
        return [name for name in contents.paths if fnmatchcase(name, contexts_like)]

    return read_bundle(root, kind, collect, system_library, hashes=hashes)


def read_bundle(
    root: Path,
    kind: str,
    collect: Callable[[Found], list[str]],
    library: Path | None,
    *,
    hashes: bool,
) -> Bundle:
    """Return a bundle of the files that `collect` adds; it returns the shards' names. Raises
    BundleError. Without `hashes` every sha256 is empty.
    """
    contents, cache, around = Found(root), HashCache(), KINDS[kind].around
    library = None if around else library  # it reads no context after a header
    try:
        shards = collect(contents)
        refuse_case_twins(sorted(contents.paths))
        files = {name: ref(name, path, cache, hashes) for name, path in contents.paths.items()}
        known = _known(files, contents)
        broken = {content.name for content in known if content.problem}
        contexts = tuple(
            inspect_context(file.source, library, name=file.name, sha256=file.sha256)
            for file in (files[name] for name in shards if name not in broken)
        )
    except OSError as error:
        hint = "check the permissions of the bundle folder: ls -lR"
        raise BundleError(f"cannot read the bundle: {error}", hint=hint) from error
    cache.save()
    if around:  # a model for the CPU has no context
        contexts = tuple(item for item in contexts if not item.problem)
    wrong, checked = check_sums(tuple(files.values()), contents) if hashes else ((), "")
    qairt, source = qairt_of(contents, contexts)
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
        files=tuple(sorted(files.values(), key=lambda item: item.name)),
        missing=tuple(contents.missing),
        warnings=tuple(contents.warnings),
        wrong_hashes=wrong,
        checked_by=checked,
        contents=tuple(known),
    )


def _known(files: Mapping[str, FileRef], contents: Found) -> list[FileContent]:
    """Return the files whose content is known, and note the files that these need."""
    known = [
        content for name, file in files.items() if (content := file_content(name, file.source))
    ]
    contents.warnings += [content.note for content in known if content.note]
    contents.missing += [
        MissingFile(content.needs, f"the program {content.name}")
        for content in known
        if content.needs and not any(_like(name, (content.needs,)) for name in files)
    ]
    return known


def _like(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name.rpartition("/")[2], pattern) for pattern in patterns)


def _names(root: Path) -> list[str]:
    if not root.is_dir():
        raise BundleError(f"{root} is not a folder", hint="give the path of a bundle folder")
    paths = []
    for parent, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in folders:
            if (Path(parent) / name).is_symlink():  # not followed; refused if it leads out
                inside(root, (Path(parent) / name).relative_to(root).as_posix(), "the bundle")
        for path in (Path(parent) / name for name in sorted(names) if not name.startswith(".")):
            _refuse_special(path)
            paths.append(path.relative_to(root).as_posix())
    return paths


def _refuse_special(path: Path) -> None:
    """Raise BundleError for a pipe, a socket or a device node.

    Reading a pipe would wait for data, and a device node has no end.
    """
    kind = path.lstat().st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISLNK(kind)):
        raise BundleError(
            f"{path} is a pipe, socket or device node, not a regular file",
            hint=f"remove this entry from the bundle folder: rm '{path}'",
        )
