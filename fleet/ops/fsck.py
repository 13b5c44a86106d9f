"""The state of a device's store as reported by fsck, and the damage in it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from fleet.device.shell import odd_answer
from fleet.model.errors import DeviceError
from fleet.model.facts import Facts
from fleet.model.manifest import Manifest, read_manifest
from fleet.ops.backend import StoreRequest, backend_for

TAG = "fleet-fsck 1"
BLOCK_BYTES = 1 << 16
_ID = re.compile(r"[0-9a-f]{16}")

Report = Callable[[int, int], object]  # bytes hashed, bytes of all blobs


@dataclass(frozen=True)
class Damage:
    """A damage in a store.

    `kind` is blob (wrong content), missing, link, manifest, unmarked (live but not marked as
    installed), current or history. `release` is `<name>/<id>`, "" for a blob that no release needs.
    `text` describes the damage, `cure` what to do.
    """

    kind: str
    release: str
    file: str = ""
    sha256: str = ""
    text: str = ""
    cure: str = ""

    @property
    def place(self) -> tuple[str, str, str]:
        """Release, file and hash of the damage, without its kind."""
        return self.release, self.file, self.sha256


@dataclass
class StoredRelease:
    """A release in the store. `manifest` is None if it is missing or damaged.

    `links` maps the name of a file to the target of its link.
    """

    name: str
    id: str
    installed: bool
    manifest: Manifest | None = None
    links: dict[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The name `<name>/<id>`."""
        return f"{self.name}/{self.id}"


class Contents:
    """The parsed answer of fsck.sh, fed in chunks. `report` is called with the hashing progress.

    `blobs` maps sha256 → bytes, `hashes` maps it → the hash of the content. A blob that cannot be
    read has no hash. `moved` are quarantined blobs.
    """

    def __init__(self, report: Report | None = None) -> None:
        self.current: dict[str, str] = {}
        self.history: dict[str, list[str]] = {}
        self.releases: dict[str, StoredRelease] = {}
        self.blobs: dict[str, int] = {}
        self.hashes: dict[str, str] = {}
        self.moved: list[str] = []
        self._report = report or (lambda *_: None)
        self._begun = self._whole = False
        self._done = 0
        self._rest = b""

    @property
    def size(self) -> int:
        """The total bytes of all blobs."""
        return sum(self.blobs.values())

    @property
    def lying(self) -> list[str]:
        """The blobs with wrong or unreadable content, from an answer with hashes."""
        return [sha for sha in self.blobs if self.hashes.get(sha) != sha]

    def take(self, chunk: bytes) -> None:
        """Parse one chunk of standard output. Raises DeviceError for unknown lines."""
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
        """Raise DeviceError if the answer was truncated."""
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
            release = StoredRelease(words[0], words[1], words[2] == "installed")
            self.releases[release.label] = release
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
            self._report(self._done, self.size)
        elif kind == "at" and words[-1].isdigit() and words[0] in self.blobs:
            self._report(self._done + int(words[1]), self.size)
        elif kind == "aside":
            self.moved.append(words[0])

    @staticmethod
    def _manifest(release: StoredRelease, text: str) -> None:
        with suppress(ValueError):
            release.manifest = read_manifest(text, release.name, release.id, whole=True)


def ask(
    facts: Facts, what: str, *, rate: float | None = None, word: str = "-", shas: list[str] | None
) -> StoreRequest:
    """Return the request for fsck.sh, or for the device worker. `rate` is in bytes per second."""
    blocks = str(max(1, int(rate // BLOCK_BYTES)) if rate else 0)
    args = (what, facts.base_dir, blocks, word)
    stdin = "".join(f"{sha}\n" for sha in shas or ()).encode()
    return backend_for(facts).fsck(args, stdin)


def damages(contents: Contents, base: str, *, hashed: bool) -> list[Damage]:
    """Return the damage. `hashed`: the answer has hashes; otherwise only sizes are compared."""
    bad = set(contents.lying) if hashed else set()
    damage_list: list[Damage] = []
    for release in contents.releases.values():
        damage_list += _of_release(release, contents.blobs, bad, base)
    needed = {damage.sha256 for damage in damage_list}
    for sha in sorted(bad - needed):
        damage_list.append(
            Damage("blob", "", "", sha, f"the stored file {sha} is damaged; no release needs it")
        )
    for name in sorted({*contents.current, *contents.history, *_names(contents)}):
        damage_list += _of_name(name, contents)
    return damage_list


def _names(contents: Contents) -> set[str]:
    return {release.name for release in contents.releases.values() if release.installed}


def _of_release(
    release: StoredRelease, blobs: Mapping[str, int], bad: set[str], base: str
) -> list[Damage]:
    label, store = release.label, f"{base}/store/"
    if release.manifest is None:
        missing = [
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
                missing.append(_missing(label, file, sha, "damaged" if sha in bad else "missing"))
        return missing
    missing = []
    for item in release.manifest.files:
        have = blobs.get(item.sha256)
        if have is None:
            missing.append(_missing(label, item.name, item.sha256, "missing"))
        elif item.sha256 in bad or have != item.size:
            missing.append(_missing(label, item.name, item.sha256, "damaged"))
        if release.links.get(posixpath.normpath(item.name)) != store + item.sha256:
            text = f"{label}: the link {item.name} to the stored file is missing"
            missing.append(Damage("link", label, item.name, item.sha256, text))
    return missing


def _missing(label: str, file: str, sha: str, how: str) -> Damage:
    kind = "blob" if how == "damaged" else "missing"
    return Damage(kind, label, file, sha, f"{label}: {file} is {how}")


def _of_name(name: str, contents: Contents) -> list[Damage]:
    """Return the damage of the live release and of the history of one name."""
    now, past = contents.current.get(name), contents.history.get(name, [])
    if now is None or f"{name}/{now}" not in contents.releases:
        why = (
            f"the target of the link current/{name} is missing"
            if now
            else f"current/{name} is missing"
        )
        return [Damage("current", name, f"current/{name}", text=why)]
    wrong, label = [], f"{name}/{now}"
    if not contents.releases[label].installed:
        text = f"{label} is the current release, but is not complete: its deploy did not finish"
        wrong.append(Damage("unmarked", label, ".installed", text=text))
    if past[-1:] != [now]:
        text = f"history/{name} does not end with the current release {now}"
        wrong.append(Damage("history", name, f"history/{name}", text=text))
    elif not all(_ID.fullmatch(entry) for entry in past):
        text = f"history/{name} contains lines that are not release ids"
        cure = "remove these lines from the file history/NAME below base_dir on the device"
        wrong.append(Damage("history", name, f"history/{name}", text=text, cure=cure))
    return wrong


def with_cure(damage: Damage, *, repaired: bool) -> Damage:
    """Return the damage with a command to type. `repaired`: a repair did not cure it."""
    again = "fleet deploy, or fleet push, with the files of this release"
    cure = damage.cure or (again if repaired else "fleet status --verify --repair")
    if not damage.release:
        cure = "no action is needed, because no release uses this file"
    return replace(damage, cure=cure)


def passed_word(when: str, contents: Contents) -> str:
    """Return the word that the device stores after a clean fsck: time (UTC), blobs, bytes."""
    return f"{when}/{len(contents.blobs)}/{contents.size}"


def passed_in(word: str) -> dict[str, Any] | None:
    """Return {passed: time, blobs, bytes} of the last clean fsck, None for another word."""
    when, _, rest = word.partition("/")
    blobs, _, size = rest.partition("/")
    if not re.fullmatch(r"[0-9T:Z-]{20}", when) or not blobs.isdigit() or not size.isdigit():
        return None
    return {"passed": when, "blobs": int(blobs), "bytes": int(size)}
