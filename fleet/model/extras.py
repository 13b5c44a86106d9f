"""The command that installs an extra: from the origin of fleet itself, for the running Python.

fleet is not on a public index, so pip cannot find `npu-fleet[report]`. The origin of a distribution
is in its direct_url.json (PEP 610).
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
    """Return the command, ready to paste."""
    return shlex.join(by_uvx(extra) or [*installer(), *source(extra)])


def by_uvx(extra: str = "", distribution: Distribution | None = None) -> list[str]:
    """Return the words that start this fleet with the extra if uvx runs it, else [].

    The environment of uvx is in uv's cache: nobody should type its path, and packages installed
    there are lost. Also return [] if the location of the wheel is unknown.
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
    """Return the arguments of `pip install` for an extra.

    Without an origin, or if the folder of a clone is gone, return the requirements of the extra,
    since fleet itself is installed.
    """
    from importlib import metadata  # noqa: PLC0415 - loads mail and zip modules, for a hint
    from urllib.request import url2pathname  # noqa: PLC0415 - loads http and ssl

    try:
        installed = distribution or metadata.distribution(NAME)
    except metadata.PackageNotFoundError:  # a clone on PYTHONPATH
        return [f"{Path(__file__).parents[2]}[{extra}]"]
    about: dict[str, Any] = json.loads(installed.read_text("direct_url.json") or "{}")
    url = urlsplit(about.get("url", ""))
    path = Path(url2pathname(url.path)) if url.scheme == "file" else None
    folder = about.get("subdirectory", "")
    if path is not None and (path / folder / "pyproject.toml").is_file():
        editable = about.get("dir_info", {}).get("editable", False)
        return [*(["-e"] if editable else []), f"{path / folder}[{extra}]"]
    if not about or (path is not None and not path.is_file()):
        return _needed(installed, extra)
    vcs = about.get("vcs_info")
    where = f"{vcs['vcs']}+{about['url']}@{vcs['commit_id']}" if vcs else about["url"]
    return [f"{NAME}[{extra}] @ {where}" + (f"#subdirectory={folder}" if folder else "")]


def installer() -> list[str]:
    """Return the words that start an installer. Environments made by uv have no pip."""
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


def _always(item: Any) -> bool:  # noqa: ANN401 - a Requirement, which is imported late
    return bool(item.marker.evaluate({"extra": ""}))
