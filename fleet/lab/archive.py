"""Debian packages of the lab: fetched and verified by apt, unpacked into folders of the lab.

apt works in a folder of its own with the host's mirrors, proxies and keys. Nothing is installed on
the host: its package database, its lists and its hooks stay out of it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from fleet.lab.host import KEYS

BUILD_SECONDS = 900  # 18 s on a quick line; a slow mirror takes minutes
MIRROR = "http://deb.debian.org/debian"
_APT = Path("/etc/apt")
_URI = re.compile(r"(?m)^[^#\n]*?\b((?:https?|mirror\+https?)://[^\s\]]*/debian)/?(?=\s|$)")
# Programs that none of the essential packages has, as in a minbase of debootstrap.
BASE = (
    "?essential",
    *["apt", "e2fsprogs", "libpam-runtime", "mawk", "mount", "passwd", "sensible-utils", "tzdata"],
)
_WITH_US = ("setpriv", "--pdeathsig", "KILL")
_UNSHARE = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child")


def mirror() -> str:
    """Return the Debian mirror that apt of this computer uses, else the one of Debian itself."""
    places = (_APT / "sources.list", *sorted((_APT / "sources.list.d").glob("*.[ls]*")))
    for place in places:
        known = place.suffix in {".list", ".sources"} and place.is_file()
        if known and (found := _URI.search(place.read_text("utf-8", "replace"))):
            return found[1]
    return MIRROR


def sources(suites: Sequence[str]) -> str:
    """Return the lines for apt's list of sources. A suite is `NAME COMPONENT...`."""
    keys = next((f"[signed-by={path}] " for path in KEYS if Path(path).is_file()), "")
    lines = [f"deb {keys}{mirror()} {suite}\n" for suite in suites]
    if mirror() == MIRROR:  # other mirrors have no common place for it
        released = (suite for suite in suites if "/" not in suite and not _ROLLING.match(suite))
        for name, _, component in (suite.partition(" ") for suite in released):
            lines.append(f"deb {keys}{MIRROR}-security {name}-security {component}\n")
    return "".join(lines)


_ROLLING = re.compile(r"sid\b|unstable\b|\S+-backports\b")


class Archive:
    """Packages of some suites for one architecture, below a folder that may be there already.

    The folder is kept until the packages are unpacked, so that a download that was interrupted
    continues.
    """

    def __init__(
        self, folder: Path, suites: Sequence[str], arch: str = "amd64", options: Sequence[str] = ()
    ) -> None:
        self._folder = folder
        self._suites = suites
        self._arch = arch
        self._options = options

    def download(self, packages: Sequence[str], *, alone: bool = False) -> list[Path]:
        """Download the packages and what they depend on, or only the named ones (`alone`).

        Return the files in order of their names. Raises subprocess.SubprocessError and OSError.
        """
        self._write()
        place = self._folder / ("alone" if alone else "archives")
        try:
            self._apt("update")
            words = ("download",) if alone else ("-y", "--download-only", "install")
            self._apt(*words, *packages, cwd=place)
        except subprocess.CalledProcessError:
            shutil.rmtree(self._folder / "lists", ignore_errors=True)
            raise
        return sorted(place.glob("*.deb"))

    def _write(self) -> None:
        for name in ("lists/partial", "archives/partial", "alone"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        (self._folder / "status").touch()
        (self._folder / "sources").write_text(sources(self._suites), "utf-8")
        (self._folder / "apt.conf").write_text(self._settings(), "utf-8")

    def _settings(self) -> str:
        """Return apt's settings: how the host fetches, and this folder for everything else."""
        dump = subprocess.run(["apt-config", "dump"], capture_output=True, check=True, timeout=60)
        lines = dump.stdout.decode("utf-8", "replace").splitlines()
        kept = [line for line in lines if line.startswith("Acquire::")]
        nothing, folder = "/dev/null", self._folder
        settings = {
            "Dir::Etc::parts": f"{nothing}/",
            "Dir::Etc::main": nothing,
            "Dir::Etc::sourcelist": folder / "sources",
            "Dir::Etc::sourceparts": f"{nothing}/",
            "Dir::Etc::preferences": nothing,
            "Dir::Etc::preferencesparts": f"{nothing}/",
            "Dir::State": folder,
            "Dir::State::status": folder / "status",
            "Dir::Cache": folder,
            "Dir::Log": folder,
            "Dir::State::lists": folder / "lists",
            "Dir::Cache::archives": folder / "archives",
            "APT::Architecture": self._arch,
            "APT::Install-Recommends": "0",
            "APT::Sandbox::User": "root",  # _apt may not enter the folder of a user
            "Acquire::Languages": "none",
            "Acquire::Retries": "3",
        }
        kept = [line for line in kept if not line.startswith("Acquire::Languages")]
        kept += [f'{key} "{value}";' for key, value in settings.items()]
        own = [
            f'APT::Architectures {{ "{self._arch}"; }};',
            *(f"{option};" for option in self._options),
        ]
        return "\n".join([*kept, *own]) + "\n"

    def _apt(self, *words: str, cwd: Path | None = None) -> None:
        env = {**os.environ, "APT_CONFIG": str(self._folder / "apt.conf"), "LC_ALL": "C.UTF-8"}
        run(["apt-get", "-q", *words], env=env, cwd=cwd)

    def remove(self) -> None:
        """Delete the downloads."""
        shutil.rmtree(self._folder, ignore_errors=True)


def run(
    argv: Sequence[str | Path], *, env: dict[str, str] | None = None, cwd: Path | None = None
) -> str:
    """Run a program that changes files of the lab only; return what it prints.

    It ends with this process, so that nothing writes into a folder that the next try makes anew.
    Raises subprocess.SubprocessError, with its standard error, and OSError.
    """
    whole = [*_WITH_US, *argv]
    done = subprocess.run(
        whole, check=True, capture_output=True, timeout=BUILD_SECONDS, env=env, cwd=cwd,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.stdout.decode("utf-8", "replace")


def unpack(debs: Sequence[Path], tree: Path) -> None:
    """Unpack packages into a tree; none of their scripts runs.

    Raises subprocess.SubprocessError and OSError.
    """
    for name in ("bin", "sbin", "lib", "lib64"):
        (tree / "usr" / name).mkdir(parents=True, exist_ok=True)
        if not (tree / name).exists():
            (tree / name).symlink_to(f"usr/{name}")
    for deb in debs:
        into = ["tar", "-x", "--keep-directory-symlink", "-C", str(tree), "-f", "-"]
        with subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE
        ) as reading:
            done = subprocess.run(into, stdin=reading.stdout, capture_output=True, check=False)
        if reading.returncode or done.returncode:
            raise subprocess.CalledProcessError(
                reading.returncode or done.returncode, str(deb), stderr=done.stderr
            )


def set_up(debs: Sequence[Path], tree: Path) -> None:
    """Install unpacked packages inside their tree: there dpkg runs their scripts. Needs root.

    Raises subprocess.SubprocessError and OSError.
    """
    script = (files("fleet.lab") / "setup.sh").read_text("utf-8")
    argv = [*_UNSHARE, "/bin/bash", "-c", script, "setup", str(tree), str(debs[0].parent)]
    run(argv)
