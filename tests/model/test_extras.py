"""The command that installs an extra, by real metadata: of this installation, and by pip."""

from __future__ import annotations

import importlib.util
import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from typing import Any

import pytest
from pip._internal.req.constructors import install_req_from_editable, install_req_from_line

from fleet.model.extras import by_uvx, install_extra, source

ROOT = Path(__file__).parents[2]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
Origin = dict[str, Any]  # direct_url.json, as PEP 610 defines it
Installed = Callable[[Origin | None], Distribution]


def folder(url: str) -> Origin:
    return {"url": url, "dir_info": {}}


def archive(url: str) -> Origin:
    return {"url": url, "archive_info": {}}


def git(url: str, **more: str) -> Origin:
    """Return the origin of a clone: `revision` and `subdirectory` are optional."""
    inside = {"subdirectory": more.pop("subdirectory")} if "subdirectory" in more else {}
    info = {"vcs": "git", "commit_id": COMMIT}
    info |= {"requested_revision": more["revision"]} if "revision" in more else {}
    return {"url": url, "vcs_info": info, **inside}


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    """This fleet's metadata, with an origin as pip writes it; None: it came from an index."""

    def make(origin: Origin | None) -> Distribution:
        folder = tmp_path / "npu_fleet-0.1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(distribution("npu-fleet").read_text("METADATA") or "")
        if origin is not None:
            (folder / "direct_url.json").write_text(json.dumps(origin))
        return PathDistribution(folder)

    return make


def test_this_installation_from_where_it_came() -> None:
    """Tests run in an editable installation (Makefile)."""
    python, *words = shlex.split(install_extra("report"))
    assert python == sys.executable
    assert words[:4] == ["-m", "pip", "install", "-e"]
    asked = install_req_from_editable(words[4])
    assert (asked.extras, asked.link and asked.link.file_path) == ({"report"}, str(ROOT))
    subprocess.run([python, *words[:3], "--help"], check=True, capture_output=True)


@pytest.mark.parametrize("kind", [folder, git], ids=["folder", "git+file"])
def test_a_folder(installed: Installed, tmp_path: Path, kind: Callable[[str], Origin]) -> None:
    """pip takes no name before `git+file:`."""
    place = tmp_path / "my clone"
    place.mkdir()
    (place / "pyproject.toml").touch()
    (word,) = source("onnx", installed(kind(place.as_uri())))
    asked = install_req_from_line(word)
    assert (asked.extras, asked.link and asked.link.file_path) == ({"onnx"}, str(place))


@pytest.mark.parametrize(
    "origin",
    [
        None,
        folder("file:///nowhere/fleet"),
        archive("file:///nowhere/x.whl"),
    ],
    ids=["index", "folder that is gone", "wheel that is gone"],
)
def test_without_a_source_what_the_extra_needs(installed: Installed, origin: Origin | None) -> None:
    words = source("report", installed(origin))
    assert [install_req_from_line(word).name for word in words] == ["vl-convert-python"]


@pytest.mark.parametrize(
    ("origin", "url"),
    [
        (git("https://h.example/fleet.git", revision="main"), "git+https"),
        (git("ssh://git@h.example/fleet.git"), "git+ssh"),
        (git("https://h.example/all", subdirectory="sub/dir"), "git+https"),
        (archive("https://h.example/npu_fleet-0.1.0-py3-none-any.whl"), "https"),
    ],
    ids=["git", "git-ssh", "git-folder-in-it", "wheel"],
)
def test_a_url(installed: Installed, origin: Origin, url: str) -> None:
    (word,) = source("dask", installed(origin))
    asked = install_req_from_line(word)
    assert (asked.name, asked.extras) == ("npu-fleet", {"dask"})
    assert asked.link is not None
    assert asked.link.scheme == url
    assert asked.link.subdirectory_fragment == origin.get("subdirectory")
    if "vcs_info" in origin:
        assert asked.link.url_without_fragment == f"git+{origin['url']}@{COMMIT}"


def test_where_there_is_no_pip_uv_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    words = shlex.split(install_extra("report"))
    assert words[:5] == ["uv", "pip", "install", "--python", sys.executable]


def test_what_uvx_runs_is_named_by_its_wheel_and_not_by_the_cache(
    installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "npu_fleet-1-py3-none-any.whl"
    wheel.touch()
    fleet = installed(archive(wheel.as_uri()))
    assert by_uvx("report", fleet) == [], "pip or a clone"
    monkeypatch.setattr(sys, "prefix", "/home/u/.cache/uv/archive-v0/x")
    for extra, name in (("", "npu-fleet"), ("report", "npu-fleet[report]")):
        uvx, option, origin, program = by_uvx(extra, fleet)
        assert (uvx, option, program) == ("uvx", "--from", "npu-fleet")
        asked = install_req_from_line(origin)
        assert str(asked.req).partition("@")[0].strip() == name, origin
        assert asked.link is not None
        assert asked.link.url == wheel.as_uri()
    wheel.unlink()
    assert by_uvx("report", fleet) == [], "nothing to name"
