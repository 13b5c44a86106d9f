"""What a device says of its own store, and what of it cannot be right."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from fleet.device.shell import device_script, odd_answer
from fleet.device.worker import fsck, runs_worker, worker_command
from fleet.model.command import Call, Command
from fleet.model.errors import DeviceError
from fleet.model.facts import Facts
from fleet.model.manifest import Manifest, read_manifest
from fleet.ops.backend import StoreRequest

TAG = "fleet-fsck 1"
BLOCK_BYTES = 1 << 16
_ID = re.compile(r"[0-9a-f]{16}")

Told = Callable[[int, int], object]  # bytes hashed, bytes of all blobs


@dataclass(frozen=True)
class Damage:
    """One thing that is not as it should be. `kind`: blob (its content is another), missing, link,
    manifest, unmarked (live, and not marked as installed), current or history; `release` is
    `<name>/<id>`, "" for a blob that none needs; `text` says it, `cure` what to do.
    """

    kind: str
    release: str
    file: str = ""
    sha256: str = ""
    text: str = ""
    cure: str = ""

    @property
    def place(self) -> tuple[str, str, str]:
        """Where it is, whatever is wrong there."""
        return self.release, self.file, self.sha256


@dataclass
class StoredRelease:
    """A release as it stands there. `manifest` is None where it is gone or damaged; `links` maps
    the name of a file to where it leads.
    """

    name: str
    id: str
    installed: bool
    manifest: Manifest | None = None
    links: dict[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """`<name>/<id>`."""
        return f"{self.name}/{self.id}"


class Contents:
    """The answer of fsck.sh, taken in chunks; `told` hears how far the hashing is.

    `blobs` maps sha256 → bytes, `hashes` the same → what its content has; one that cannot be read
    has none. `moved`: blobs that were put aside.
    """

    def __init__(self, told: Told | None = None) -> None:
        self.current: dict[str, str] = {}
        self.history: dict[str, list[str]] = {}
        self.releases: dict[str, StoredRelease] = {}
        self.blobs: dict[str, int] = {}
        self.hashes: dict[str, str] = {}
        self.moved: list[str] = []
        self._told = told or (lambda *_: None)
        self._begun = self._whole = False
        self._done = 0
        self._rest = b""

    @property
    def size(self) -> int:
        """Bytes of all blobs."""
        return sum(self.blobs.values())

    @property
    def lying(self) -> list[str]:
        """Blobs whose content is another, or cannot be read; of an answer with hashes."""
        return [sha for sha in self.blobs if self.hashes.get(sha) != sha]

    def take(self, chunk: bytes) -> None:
        """One chunk of standard output. Raises DeviceError for what no program of ours says."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            text = line.decode("utf-8", "replace")
            if not self._begun:
                self._begun = text == TAG
            elif text == "end":
                self._whole = True
            else:
                self._line(text)

    def check(self, host: str) -> None:
        """Raise DeviceError where the answer was cut."""
        if not self._whole:
            raise DeviceError(
                "the device returned only a part of its answer to fsck",
                device=host,
                hint="fleet status --verify",
            )

    def _line(self, line: str) -> None:
        kind, _, rest = line.partition(" ")
        words = rest.split(" ", 2)
        try:
            self._fact(kind, words)
        except (IndexError, KeyError, ValueError) as error:
            raise odd_answer(line, "") from error

    def _fact(self, kind: str, words: list[str]) -> None:
        if kind == "current":
            self.current[words[0]] = words[1]
        elif kind == "history":
            self.history.setdefault(words[0], []).append(words[1])
        elif kind == "release":
            found = StoredRelease(words[0], words[1], words[2] == "installed")
            self.releases[found.label] = found
        elif kind == "manifest":
            self._manifest(self.releases[f"{words[0]}/{words[1]}"], words[2])
        elif kind == "link":
            to, _, name = words[2].partition("\t")
            self.releases[f"{words[0]}/{words[1]}"].links[name] = to
        elif kind == "blob":
            self.blobs[words[1]] = int(words[0])
        elif kind == "hash":
            self.hashes[words[0]] = words[1]
            self._done += self.blobs.get(words[0], 0)
            self._told(self._done, self.size)
        elif kind == "at" and words[-1].isdigit() and words[0] in self.blobs:
            self._told(self._done + int(words[1]), self.size)
        elif kind == "aside":
            self.moved.append(words[0])

    @staticmethod
    def _manifest(release: StoredRelease, text: str) -> None:
        with suppress(ValueError):
            release.manifest = read_manifest(text, release.name, release.id, whole=True)


def ask(
    facts: Facts, what: str, *, rate: float | None = None, word: str = "-", shas: list[str] | None
) -> StoreRequest:
    """`what` of fsck.sh, by the device worker where Python is. `rate` in bytes a second."""
    blocks = str(max(1, int(rate // BLOCK_BYTES)) if rate else 0)
    args = (what, facts.base_dir, blocks, word)
    stdin = "".join(f"{sha}\n" for sha in shas or ()).encode()
    if facts.windows is not None:
        return StoreRequest(Command(("python3",), call=Call("fsck", args)), [stdin])
    if runs_worker(facts):
        return StoreRequest(worker_command(facts, *args), [fsck() + stdin])
    return StoreRequest(device_script("fsck", *args, *facts.tools.sha256), [stdin])


def damages(found: Contents, base: str, *, hashed: bool) -> list[Damage]:
    """What is wrong. `hashed`: the answer has the hashes; else only sizes are looked at."""
    bad = set(found.lying) if hashed else set()
    said: list[Damage] = []
    for release in found.releases.values():
        said += _of_release(release, found.blobs, bad, base)
    needed = {damage.sha256 for damage in said}
    for sha in sorted(bad - needed):
        said.append(
            Damage("blob", "", "", sha, f"the stored file {sha} is damaged; no release needs it")
        )
    for name in sorted({*found.current, *found.history, *_names(found)}):
        said += _of_name(name, found)
    return said


def _names(found: Contents) -> set[str]:
    return {release.name for release in found.releases.values() if release.installed}


def _of_release(
    release: StoredRelease, blobs: Mapping[str, int], bad: set[str], base: str
) -> list[Damage]:
    label, store = release.label, f"{base}/store/"
    if release.manifest is None:
        said = [
            Damage(
                "manifest",
                label,
                "manifest.json",
                text=f"{label}: the manifest is missing or damaged",
            )
        ]
        for file, to in release.links.items():
            sha = to.removeprefix(store)
            if to.startswith(store) and (sha not in blobs or sha in bad):
                said.append(_missing(label, file, sha, "damaged" if sha in bad else "missing"))
        return said
    said = []
    for item in release.manifest.files:
        have = blobs.get(item.sha256)
        if have is None:
            said.append(_missing(label, item.name, item.sha256, "missing"))
        elif item.sha256 in bad or have != item.size:
            said.append(_missing(label, item.name, item.sha256, "damaged"))
        if release.links.get(posixpath.normpath(item.name)) != store + item.sha256:
            text = f"{label}: the link {item.name} to the stored file is missing"
            said.append(Damage("link", label, item.name, item.sha256, text))
    return said


def _missing(label: str, file: str, sha: str, how: str) -> Damage:
    kind = "blob" if how == "damaged" else "missing"
    return Damage(kind, label, file, sha, f"{label}: {file} is {how}")


def _of_name(name: str, found: Contents) -> list[Damage]:
    """What is live, and the history of one name."""
    now, past = found.current.get(name), found.history.get(name, [])
    if now is None or f"{name}/{now}" not in found.releases:
        why = (
            f"the target of the link current/{name} is missing"
            if now
            else f"current/{name} is missing"
        )
        return [Damage("current", name, f"current/{name}", text=why)]
    said, label = [], f"{name}/{now}"
    if not found.releases[label].installed:
        text = f"{label} is the current release, but is not complete: its deploy did not finish"
        said.append(Damage("unmarked", label, ".installed", text=text))
    if past[-1:] != [now]:
        text = f"history/{name} does not end with the current release {now}"
        said.append(Damage("history", name, f"history/{name}", text=text))
    elif not all(_ID.fullmatch(entry) for entry in past):
        text = f"history/{name} contains lines that are not release ids"
        cure = "remove these lines from the file history/NAME below base_dir on the device"
        said.append(Damage("history", name, f"history/{name}", text=text, cure=cure))
    return said


def with_cure(damage: Damage, *, repaired: bool) -> Damage:
    """The same with what to type; `repaired`: a repair was tried, and left it."""
    again = "fleet deploy, or fleet push, with the files of this release"
    cure = damage.cure or (again if repaired else "fleet status --verify --repair")
    if not damage.release:
        cure = "no action is needed, because no release uses this file"
    return replace(damage, cure=cure)


def passed_word(when: str, found: Contents) -> str:
    """What is kept on the device after all was right: time (UTC), blobs, bytes; one word."""
    return f"{when}/{len(found.blobs)}/{found.size}"


def passed_in(word: str) -> dict[str, Any] | None:
    """Time, blobs and bytes of the last fsck that found nothing; None where none is said."""
    when, _, rest = word.partition("/")
    blobs, _, size = rest.partition("/")
    if not re.fullmatch(r"[0-9T:Z-]{20}", when) or not blobs.isdigit() or not size.isdigit():
        return None
    return {"passed": when, "blobs": int(blobs), "bytes": int(size)}
