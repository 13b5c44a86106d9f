"""Debian packages of the lab. apt fetches and verifies them; they are unpacked into lab folders.

apt works in its own folder with the host's mirrors, proxies and keys. It installs nothing on the
host, and does not use the host's package database, lists or hooks.
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

BUILD_SECONDS = 900  # 18 s on a fast line; a slow mirror needs minutes
MIRROR = "http://deb.debian.org/debian"
_APT = Path("/etc/apt")
_URI = re.compile(r"(?m)^[^#\n]*?\b((?:https?|mirror\+https?)://[^\s\]]*/debian)/?(?=\s|$)")
# Programs that no essential package contains, as in a minbase of debootstrap.
BASE = (
    "?essential",
    *["apt", "e2fsprogs", "libpam-runtime", "mawk", "mount", "passwd", "sensible-utils", "tzdata"],
)
_WITH_US = ("setpriv", "--pdeathsig", "KILL")
_UNSHARE = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child")


def mirror() -> str:
    """Return the Debian mirror that this computer's apt uses, or Debian's own if there is none."""
    places = (_APT / "sources.list", *sorted((_APT / "sources.list.d").glob("*.[ls]*")))
    for place in places:
        known = place.suffix in {".list", ".sources"} and place.is_file()
        if known and (match := _URI.search(place.read_text("utf-8", "replace"))):
            return match[1]
    return MIRROR


def sources(suites: Sequence[str]) -> str:
    """Return the lines of apt's source list. A suite is `NAME COMPONENT...`."""
    keys = next((f"[signed-by={path}] " for path in KEYS if Path(path).is_file()), "")
    lines = [f"deb {keys}{mirror()} {suite}\n" for suite in suites]
    if mirror() == MIRROR:  # other mirrors have no common place for security updates
        released = (suite for suite in suites if "/" not in suite and not _ROLLING.match(suite))
        for name, _, component in (suite.partition(" ") for suite in released):
            lines.append(f"deb {keys}{MIRROR}-security {name}-security {component}\n")
    return "".join(lines)


_ROLLING = re.compile(r"sid\b|unstable\b|\S+-backports\b")


class Archive:
    """Packages of some suites for one architecture, in a folder that may exist already.

    The folder is kept until the packages are unpacked, so that an interrupted download resumes.
    """

    def __init__(
        self, folder: Path, suites: Sequence[str], arch: str = "amd64", options: Sequence[str] = ()
    ) -> None:
        self._folder = folder
        self._suites = suites
        self._arch = arch
        self._options = options

    def download(self, packages: Sequence[str], *, alone: bool = False) -> list[Path]:
        """Download the packages with their dependencies, or only the named packages (`alone`).

        Return the files sorted by name. Raises subprocess.SubprocessError and OSError.
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
        """Return apt's settings: the host's settings for fetching, and this folder for all other
        paths.
        """
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
            "APT::Sandbox::User": "root",  # the user _apt may not enter a user's folder
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
        """Delete the downloaded packages."""
        shutil.rmtree(self._folder, ignore_errors=True)


def run(
    argv: Sequence[str | Path], *, env: dict[str, str] | None = None, cwd: Path | None = None
) -> str:
    """Run a program that changes only lab files, and return its standard output.

    The program ends with this process, so that it cannot write into a folder that the next attempt
    rebuilds. Raises subprocess.SubprocessError with the standard error, and OSError.
    """
    whole = [*_WITH_US, *argv]
    done = subprocess.run(
        whole, check=True, capture_output=True, timeout=BUILD_SECONDS, env=env, cwd=cwd,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.stdout.decode("utf-8", "replace")


def unpack(debs: Sequence[Path], tree: Path) -> None:
    """Unpack packages into a tree without running their scripts.

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
    """Install unpacked packages inside their tree, where dpkg runs their scripts. Needs root.

    Raises subprocess.SubprocessError and OSError.
    """
    script = (files("fleet.lab") / "setup.sh").read_text("utf-8")
    argv = [*_UNSHARE, "/bin/bash", "-c", script, "setup", str(tree), str(debs[0].parent)]
    run(argv)
