"""The inspection of a bundle folder: its needs, the files for the device, and its faults."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

from fleet.bundles.genie import has_genie_configs, inspect_genie
from fleet.bundles.kinds import guess
from fleet.bundles.ort import inspect_ort
from fleet.bundles.plain import inspect_plain
from fleet.model.bundle import Bundle


def inspect_bundle(
    folder: Path,
    system_library: Path | None = None,
    *,
    hashes: bool = True,
    kind: str = "genie",
    config: str | None = None,
) -> Bundle:
    """Return the known facts of a bundle folder. Missing and damaged files are data, not errors.

    `kind` is the kind of the playbook. A genie bundle has a configuration that names its files; of
    all other kinds, all files are sent. `config` chooses the configuration of a genie bundle that
    has several. `runtime` stands for a playbook without a bundle: nothing is read.

    `system_library` is an x86_64 libQnnSystem.so for this host (see `inspect_context`). With
    `hashes=False` every sha256 is empty; this is for inspection, not for a deploy. Raises
    BundleError if there is no configuration, if it cannot be understood, or if it names a file
    outside the folder.
    """
    root = folder.expanduser().absolute()
    if kind == "runtime":
        return Bundle(kind, "", root, "", {}, None, {}, None, "", (), (), ())
    if kind == "ort":
        return inspect_ort(root, system_library, hashes=hashes)
    if kind != "genie":
        return inspect_plain(root, system_library, kind, hashes=hashes)
    return inspect_genie(root, config, system_library, hashes=hashes)


def guessed(root: Path) -> str:
    """Return the kind of a bundle folder by its file names, `genie` for unknown ones."""
    try:
        names = sorted(path.name for path in root.iterdir())
    except OSError:
        return "genie"
    if any(fnmatchcase(name, "*genie_config*.json") for name in names):
        return "genie"
    if has_genie_configs(root):
        return "genie"
    return (guess(names) or ("genie", ""))[0]
