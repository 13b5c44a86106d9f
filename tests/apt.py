"""Packages of Debian unstable through an apt of one's own: nothing is installed here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SECONDS = 600.0
_CONFIGURATION = """\
Dir "{root}";
Dir::State::status "{root}/var/lib/dpkg/status";
Dir::Etc::sourceparts "-";
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Check-Valid-Until "false";
"""


def downloaded(
    folder: Path,
    packages: tuple[str, ...],
    components: str,
    architecture: str = "amd64",
    suite: str = "sid",
) -> list[Path]:
    """The .deb files of packages (`name` or `name=version`), in `folder`, which is made anew.

    Raises OSError with what apt said: it is not there, has no network, has no such version.
    """
    if not KEYS.is_file() or not shutil.which("apt-get"):
        raise OSError("this machine has no apt of Debian")
    shutil.rmtree(folder, ignore_errors=True)
    archives = folder / "var" / "cache" / "apt" / "archives"
    for name in ("etc/apt/preferences.d", "var/lib/apt/lists/partial", "var/lib/dpkg"):
        (folder / name).mkdir(parents=True)
    (archives / "partial").mkdir(parents=True)
    (folder / "var" / "lib" / "dpkg" / "status").touch()
    (folder / "etc" / "apt" / "sources.list").write_text(
        f"deb [arch={architecture} signed-by={KEYS}] {mirror()} {suite} {components}\n"
    )
    configuration = folder / "apt.conf"
    configuration.write_text(_CONFIGURATION.format(root=folder, architecture=architecture))
    for words in (("update",), ("download", *packages)):
        done = subprocess.run(
            ["apt-get", *words], capture_output=True, text=True, check=False, cwd=archives,
            timeout=SECONDS, env={**os.environ, "APT_CONFIG": str(configuration)},
        )  # fmt: skip
        if done.returncode:
            raise OSError(f"apt-get {words[0]} of Debian {suite}: {done.stderr.strip()[-300:]}")
    return sorted(archives.glob("*.deb"))


def mirror() -> str:
    """Where this machine's own apt has Debian from."""
    for source in (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list")):
        text = source.read_text() if source.is_file() else ""
        found = re.search(r"^(?:URIs:|deb(?: \[.*\])?) *(\S*/debian/?)(?= |$)", text, re.MULTILINE)
        if found:
            return found[1]
    raise OSError("no mirror of Debian among the sources of apt")
