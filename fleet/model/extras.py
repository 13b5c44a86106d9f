"""How an extra is installed here: from where fleet itself came, by the Python that runs it.

Fleet is on no public index, so `npu-fleet[report]` alone is nothing that pip could find. Where a
distribution came from is in its direct_url.json (PEP 610).
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fleet.model.errors import InputError

if TYPE_CHECKING:
    from importlib.metadata import Distribution

NAME = "npu-fleet"


def install_extra(extra: str) -> str:
    """The command, ready to paste."""
    return shlex.join(by_uvx(extra) or [*_installer(), *source(extra)])


def by_uvx(extra: str = "", distribution: Distribution | None = None) -> list[str]:
    """Return the words that start this fleet, with the extra, if uvx runs it; else [].

    The environment of uvx is in uv's cache: its path is nothing to type, and what is installed
    there is lost. Also [] if nothing says where the wheel is.
    """
    if "archive-v" not in sys.prefix:
        return []
    *_, origin = source(extra, distribution) or [""]
    if f"[{extra}]" not in origin:
        return []
    return ["uvx", "--from", origin.replace("[]", ""), NAME]


def loaded(module: str, extra: str, what: str) -> Any:  # noqa: ANN401 - a module
    """Import the module of an extra for `what`. Raises InputError that names the command."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"{what} needs the Python package {module}, which is not installed",
            hint=install_extra(extra),
        ) from error


def source(extra: str, distribution: Distribution | None = None) -> list[str]:
    """What `pip install` is to be given. Without an origin, or where the folder of a clone is
    gone, what the extra needs: fleet itself is there.
    """
    from importlib import metadata  # noqa: PLC0415 - mail and zip files, for a hint
    from urllib.request import url2pathname  # noqa: PLC0415 - http and ssl

    try:
        found = distribution or metadata.distribution(NAME)
    except metadata.PackageNotFoundError:  # a clone on PYTHONPATH
        return [f"{Path(__file__).parents[2]}[{extra}]"]
    about: dict[str, Any] = json.loads(found.read_text("direct_url.json") or "{}")
    url = urlsplit(about.get("url", ""))
    path = Path(url2pathname(url.path)) if url.scheme == "file" else None
    folder = about.get("subdirectory", "")
    if path is not None and (path / folder / "pyproject.toml").is_file():
        editable = about.get("dir_info", {}).get("editable", False)
        return [*(["-e"] if editable else []), f"{path / folder}[{extra}]"]
    if not about or (path is not None and not path.is_file()):
        return _needed(found, extra)
    vcs = about.get("vcs_info")
    where = f"{vcs['vcs']}+{about['url']}@{vcs['commit_id']}" if vcs else about["url"]
    return [f"{NAME}[{extra}] @ {where}" + (f"#subdirectory={folder}" if folder else "")]


def _installer() -> list[str]:
    """Environments that uv made have no pip."""
    if importlib.util.find_spec("pip") is None:
        return ["uv", "pip", "install", "--python", sys.executable]
    return [sys.executable, "-m", "pip", "install"]


def _needed(distribution: Distribution, extra: str) -> list[str]:
    from packaging.requirements import Requirement  # noqa: PLC0415

    every = [Requirement(text) for text in distribution.requires or ()]
    return [
        f"{item.name}{item.specifier}"
        for item in every
        if item.marker and item.marker.evaluate({"extra": extra}) and not _always(item)
    ]


def _always(item: Any) -> bool:  # noqa: ANN401 - a Requirement, which is loaded late
    return bool(item.marker.evaluate({"extra": ""}))
