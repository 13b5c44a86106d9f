"""Tools of devices, each as a folder for PATH: what Debian's suites ship, as it is there.

Of toybox Debian has one upstream version (0.8.9), in two packages. Others, say those of Android
10 and 16, are tried where somebody built them: FLEET_TOYBOXES=/a/toybox-0.8.0:/b/toybox-0.8.12.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from fleet.lab.androidroot import android_root
from fleet.lab.archive import Archive, unpack
from fleet.lab.rootfs import APT, building, built_once, cache_dir, downloads
from fleet.model.errors import LabError
from tests import needs

SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
OTHERS = tuple(one for one in os.environ.get("FLEET_TOYBOXES", "").split(":") if one)
TOYBOXES = ("toybox-bookworm", "toybox-trixie", *OTHERS)
BUSYBOXES = ("busybox", "busybox-bullseye")
# Debian's toybox has not all of these, and not every dd knows iflag=fullblock: those of the host.
_BESIDE_TOYBOX = ("awk", "dd", "grep", "gzip", "sha256sum", "tr")


def debian_tree(suite: str, package: str) -> Path:
    """The files of a package and what it needs, of any suite; none of their scripts runs."""

    def build(target: Path) -> None:
        with building(target, f"{package} of {suite}") as part:
            archive = Archive(downloads(part), [f"{suite} main"])
            unpack(archive.download([package]), part)
            archive.remove()

    place = cache_dir() / "lab" / f"tools-{suite}-{package}"
    try:
        return built_once(place, APT, build)
    except LabError as error:
        pytest.skip(f"no {package} of Debian {suite} here: {error}")


def program(name: str) -> Path:
    """The busybox or toybox of that name."""
    if name == "toybox-trixie":
        try:
            return android_root() / "system" / "bin" / "toybox"
        except LabError as error:
            pytest.skip(f"no toybox of Debian trixie here: {error}")
    if name.startswith("/"):
        return Path(name)
    kind, _, suite = name.partition("-")
    if not suite:
        return Path(needs.tool(kind))
    package = "busybox-static" if kind == "busybox" else kind
    tree = debian_tree(suite, package)
    return next(one for one in (tree / "bin" / kind, tree / "usr/bin" / kind) if one.is_file())


def toolset(name: str, folder: Path, shell: str = "dash") -> Path:
    """A folder with the tools called `name` (coreutils, a busybox, a toybox), no Python, and `sh`.

    `shell` is the program behind `sh`; "busybox" is the one of the tools.
    """
    folder.mkdir(parents=True)
    if name == "coreutils":
        for one in Path("/usr/bin").iterdir():
            if not one.name.startswith("python") and one.name != "sh":
                (folder / one.name).symlink_to(one)
    else:
        box = program(name)
        shutil.copy(box, folder / "box")
        (folder / "box").chmod(0o755)
        listed = [str(box), "--list"] if "busybox" in box.name else [str(box)]
        said = subprocess.run(listed, capture_output=True, text=True, check=True).stdout
        beside = _BESIDE_TOYBOX if "toybox" in box.name else ()
        for applet in set(said.split()) - {"toybox", "busybox", *beside}:
            if applet != "sh" or shell == "busybox":
                (folder / applet).symlink_to(folder / "box")
        for tool in beside:
            (folder / tool).symlink_to(str(shutil.which(tool)))
    if not (folder / "sh").exists():
        (folder / "sh").symlink_to(needs.tool(shell))
    return folder
