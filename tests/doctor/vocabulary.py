"""The words that stay in an archive for a maintainer: fleet/data/log_words.txt, made from texts.

`python -m tests.doctor.vocabulary DEB...` makes the file again. Its words come from

- fleet's own tables, causes and program texts (every word, without links and sources), and words
  of its pages that a program of Debian says, too;
- names of systems and makers (below);
- the logs of tests/triage/data: words that stand in two of them;
- the messages of programs of Debian (main): words in small letters that stand in the messages of
  at least three of the packages below, or of the kernel modules in the packages DEB
  (`apt-get download linux-image-...`).

A single word is nobody's work. Names of people and words that are used as passwords
(tests/doctor/no_words.txt) are left out, whatever text has them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from fleet.doctor.redaction import shape

ROOT = Path(__file__).parents[2]
FILE = ROOT / "fleet" / "data" / "log_words.txt"
NO_WORDS = Path(__file__).with_name("no_words.txt")
HEAD = """\
# Words that stay in the archives of `fleet doctor --bundle` and `fleet selftest`; # is a number.
# Made by python -m tests.doctor.vocabulary, which says from what.
"""
PACKAGES = (
    *("coreutils", "util-linux", "systemd", "udev", "openssh-server", "openssh-client", "libc6"),
    *("libc-bin", "dpkg", "apt", "bash", "dash", "sudo", "login", "passwd", "procps", "iproute2"),
    *("kmod", "tar", "gzip", "findutils", "grep", "sed", "adb", "libpython3.11-stdlib", "binutils"),
    *("python3.11-minimal", "libssl3", "libstdc++6", "mount", "dbus-daemon", "libselinux1", "gcc"),
    *(
        "libpam-modules",
        "libpam-runtime",
        "libsystemd0",
        "curl",
        "libcurl4",
        "rsync",
        "git",
        "less",
    ),
)
# Names of systems, makers and days, which no message has in small letters.
SYSTEMS = """
    lts gnu linux ubuntu debian yocto poky oe openembedded fedora arch alpine android windows
    kirkstone scarthgap styhead walnascar whinlatter wrynose jammy noble plucky questing bookworm
    trixie forky sid bullseye focal qualcomm qcom hexagon snapdragon adreno kryo dragonwing robotics
    radxa thundercomm arduino advantech samsung xiaomi oneplus google motorola sony honor oppo vivo
    realme nothing asus lenovo zte fairphone pixel galaxy
    deb#u# el# fc# ttys# ttymsm# ttyhs# noforce findutils coreutils busybox toybox libtirpc#
    jan feb mar apr may jun jul aug sep oct nov dec mon tue wed thu fri sat sun utc gmt smp preempt
"""
ENOUGH = 3  # units that say a word
_LINK = re.compile(
    r"\w+://\S+|\S+@\S+|(?<![\w/.~$}])[A-Za-z][\w.-]*/[\w.-]+(?![\w/])"
    r"|^\s*-? ?\"?(?:source|sources|lab|seen)\"?:.*$",
    re.MULTILINE,
)
_ESCAPE = re.compile(r"\\[a-zA-Z]")  # of patterns and texts of programs
_RUN = re.compile(r"[A-Za-z0-9]+")
_CAMEL = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_SMALL = re.compile(r"(?<![\w@/.-])[a-z]{3,14}(?![\w@])")
_PERSONAL = re.compile(r"copyright|written by|author|maintainer|@|thanks", re.IGNORECASE)
_CODE = re.compile(r"0x[0-9a-fA-F]{5,16}|(?<=-)\d{8,10}\b")  # of errors
_HEX = re.compile(r"[0-9a-f#]+")


def tables() -> Iterator[str]:
    """Fleet's tables and causes, without their sources."""
    for path in sorted((ROOT / "fleet" / "data").rglob("*.yaml")):
        text = path.read_text("utf-8")
        yield _LINK.sub(" ", text)
        yield "\n".join(line for line in text.splitlines() if "match: " in line)


def own_texts() -> Iterator[str]:
    """Texts of the repository whose every word stays."""
    yield from tables()
    places = (
        *(path for end in ("py", "sh", "ps1") for path in (ROOT / "fleet").rglob(f"*.{end}")),
    )
    for path in sorted(places):
        yield _LINK.sub(" ", path.read_text("utf-8"))


def pages() -> Iterator[str]:
    """Fleet's pages, which also name projects and people."""
    for path in sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]):
        if "sources" not in path.parts:
            yield _LINK.sub(" ", path.read_text("utf-8"))


def logs() -> Iterator[str]:
    """The logs of tests, each of which is a unit."""
    folder = ROOT / "tests" / "triage" / "data"
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".jsonl":
            yield from map(_log, path.read_text("utf-8").splitlines())
        elif path.is_file():
            yield path.read_text("utf-8", "replace")


def _log(line: str) -> str:
    row = json.loads(line)
    return str(row.get("log") or row.get("text") or row.get("output") or "")


def messages(packages: Iterable[str], debs: Iterable[str]) -> Iterator[set[str]]:
    """Small words in the messages of each package that is installed, and of each module."""
    for name in packages:
        done = subprocess.run(["dpkg", "-L", name], capture_output=True, text=True, check=False)
        files = [Path(line) for line in done.stdout.splitlines()]
        yield set().union(*(_small(file) for file in files if _is_program(file)))
    for deb in debs:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["dpkg-deb", "-x", deb, folder], check=True)
            for file in sorted(Path(folder).rglob("*.ko")):
                yield _small(file)


def _is_program(path: Path) -> bool:
    if not path.is_file() or path.is_symlink() or "/usr/share/" in str(path):
        return False
    return (
        path.suffix in {".py", ".so"} or ".so." in path.name or path.read_bytes()[:4] == b"\x7fELF"
    )


def _small(path: Path) -> set[str]:
    done = subprocess.run(["strings", "-n", "8", path], capture_output=True, check=True)
    found: set[str] = set()
    for line in done.stdout.decode("ascii", "replace").splitlines():
        if line.count(" ") >= 2 and not _PERSONAL.search(line):
            found.update(_SMALL.findall(line))
    return found


def shapes(text: str) -> Iterator[str]:
    """Each run of letters and digits as the redaction sees it, and the parts of joined words."""
    for run in _RUN.findall(_ESCAPE.sub(" ", text)):
        yield shape(run)
        if run.isalpha():
            yield from (part.lower() for part in _CAMEL.findall(run))


def fits(word: str) -> bool:
    """Whether a word can be none of a key's: some letters, one number, not hexadecimal alone."""
    letters = re.sub(r"[^a-z]", "", word)
    if not letters or len(word) > 32:
        return False
    if word[0] == "#":  # 3rd, 8gb
        return len(word) <= 3
    if word.count("#") > 1:
        return len(letters) > 4 and not _HEX.fullmatch(word)
    return "#" not in word or len(word) <= 3 or not _HEX.fullmatch(word)


def words(debs: Iterable[str]) -> set[str]:
    """All of them."""
    found = {one for text in own_texts() for one in shapes(text)}
    paged = {one for text in pages() for one in shapes(text) if "#" not in one}
    codes = {code.lower() for text in tables() for code in _CODE.findall(text)}
    units: Counter[str] = Counter()
    for log in logs():
        units.update(set(shapes(_LINK.sub(" ", log))))
    found |= {word for word, number in units.items() if number >= 2}
    said: Counter[str] = Counter()
    for unit in messages(PACKAGES, debs):
        said.update(unit)
    found |= paged & said.keys()
    found |= {word for word, number in said.items() if number >= ENOUGH}
    return ({word for word in found if fits(word)} - no_words()) | codes | set(SYSTEMS.split())


def no_words() -> set[str]:
    """Names of people and words that are used as passwords."""
    text = NO_WORDS.read_text("utf-8")
    return {word for line in text.splitlines() if line[:1] != "#" for word in line.split()}


if __name__ == "__main__":
    FILE.write_text(HEAD + "\n".join(sorted(words(sys.argv[1:]))) + "\n", "utf-8")
