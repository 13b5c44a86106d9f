"""The file of a model → the files of a bundle. An archive is not trusted."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from fleet.model.errors import AiHubError, FleetError, RuntimeStoreError, reason
from fleet.model.files import check_name
from fleet.runtimes.tree import ZipTree, open_zip

RECORD = "aihub.json"
_MAX_MEMBER = 64_000_000_000  # the largest shard seen has 1.5 GB; a float ONNX model has its all
_MAX_FILES = 10_000
_MAX_RATIO = 250  # of the whole; weights shrink 1 to 4 times
_HEADROOM_BYTES = 50_000_000


def safe_name(text: str, otherwise: str) -> str:
    """A name of AI Hub as a file name: letters, digits, `.`, `_`, `-`."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)[:100].strip("._-") or otherwise


def lay_out(asset: Path, folder: Path, stem: str) -> None:
    """Unpack a zip into `folder`, move any other file there, called `stem` and its suffix.

    A single folder at the top of a zip falls away: a bundle has its files at its root. Raises
    AiHubError for a damaged or hostile archive, and for a full disk.
    """
    try:
        if asset.suffix.lower() == ".zip":
            with open_zip(asset, _MAX_MEMBER) as tree:
                _unpack(_below_single_folder(tree), asset, folder)
        else:
            asset.rename(folder / safe_name(stem + asset.suffix, stem))
    except RuntimeStoreError as error:
        raise AiHubError(
            "the archive from AI Hub is damaged or unsafe, so fleet wrote nothing: "
            f"{error.message}",
            hint="run the command again; if it still fails, check the job on the AI Hub web page",
        ) from error
    except OSError as error:
        raise AiHubError(
            f"the bundle folder {error.filename or folder} cannot be written: {reason(error)}",
            hint="run the command again with another folder: -o FOLDER",
        ) from error


def _below_single_folder(tree: ZipTree) -> ZipTree:
    tops = {name.partition("/")[::2] for name in tree.sizes()}
    names = {top for top, _ in tops}
    return tree.below(f"{names.pop()}/") if len(names) == 1 and all(r for _, r in tops) else tree


def _unpack(tree: ZipTree, asset: Path, folder: Path) -> None:
    sizes = tree.sizes()
    total = sum(sizes.values())
    if not sizes:
        raise AiHubError(
            "the archive that AI Hub sent is empty", hint="check the job on the AI Hub web page"
        )
    # Members of a bomb share their bytes: each alone looks harmless.
    if len(sizes) > _MAX_FILES or total > _HEADROOM_BYTES + _MAX_RATIO * asset.stat().st_size:
        raise AiHubError(
            "fleet did not unpack the archive from AI Hub, because its size is implausible: "
            f"{asset.stat().st_size} bytes would become {len(sizes)} files with {total} bytes",
            hint="check the job on the AI Hub web page",
        )
    free = shutil.disk_usage(folder).free
    if free < total + _HEADROOM_BYTES:
        raise AiHubError(
            f"not enough disk space for {folder}: the bundle needs {total / 1e6:.0f} MB, "
            f"the disk has {free / 1e6:.0f} MB free",
            hint="name a folder that you can write to: -o FOLDER",
        )
    if RECORD in sizes:
        raise AiHubError(
            f"the archive from AI Hub contains a file {RECORD}, but fleet uses this name itself",
            hint=f"download the archive from the AI Hub web page, unpack it without {RECORD}, and "
            "name that folder as the bundle in the playbook",
        )
    for name in sizes:
        try:
            check_name(name)
        except FleetError as error:
            raise AiHubError(
                f"the archive from AI Hub is not safe to unpack: {error.message}",
                hint="check the job on the AI Hub web page",
            ) from error
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        tree.place(name, place)
