"""A zip on a web server, of which only the members that are wanted are downloaded.

The local copy is sparse: it has the size of the remote file, and holes where nothing was asked
for. The end of the zip, with its table of contents, comes first, as zip readers do it. A server
that ignores range requests sends the whole file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import httpx

from fleet.model.errors import RuntimeStoreError
from fleet.model.files import human_bytes
from fleet.model.home import private_folder
from fleet.runtimes.download import (
    CONNECT_SECONDS,
    SILENCE_SECONDS,
    TRIES_WITHOUT_BYTES,
    validator_of,
)
from fleet.runtimes.stage import Progress
from fleet.runtimes.tree import ZIP_ERRORS, open_zip

Span = tuple[int, int]  # first byte, byte after the last one

TAIL_BYTES = (1 << 20, 1 << 23, 1 << 26)  # the table of contents of QAIRT 2.25 has 0.6 MB
_SAVE_BYTES = 1 << 23  # what a killed process downloads again at most
_CHANGES = 3  # of the file on the server, until fleet gives up
_HEADROOM_BYTES = 50_000_000
_RANGE = re.compile(r"^bytes (\d+)-(\d+)/(\d+)$")


def download_members(
    url: str, folder: Path, wanted: Callable[[Path], Iterable[Span]], progress: Progress
) -> Path:
    """Download what `wanted` asks for of the zip at `url`, and return the sparse copy.

    `wanted` gets the copy when its table of contents is there and returns byte ranges. What an
    earlier try left in `folder` is used again if the server still has the same file. Raises
    RuntimeStoreError if the server refuses, stays silent, or sends something that is no zip.
    """
    private_folder(folder)
    copy = folder / f"{key_of(url)}.partial"
    timeout = httpx.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
    with httpx.Client(timeout=timeout, follow_redirects=True) as client:
        for _ in range(_CHANGES):
            part = _Partial(client, url, copy, progress)
            with contextlib.suppress(_ChangedError):
                part.need_contents()
                part.need(wanted(copy))
                return copy
    raise RuntimeStoreError(
        f"the file at {url} changed several times during the download",
        hint="wait until the publisher has finished, then run the command again",
    )


def key_of(url: str) -> str:
    """Return the name under which the sparse copy of `url` is kept."""
    return hashlib.sha256(url.encode()).hexdigest()


def contents_digest(path: Path) -> str:
    """Return the SHA-256 of a zip's table of contents: names, sizes and checksums of all members.

    Raises RuntimeStoreError if the file is no zip.
    """
    with open_zip(path) as archive, path.open("rb") as stream:
        stream.seek(archive.contents_start)
        return hashlib.sha256(stream.read()).hexdigest()


def forget(copy: Path) -> None:
    """Delete a sparse copy and what is known of it."""
    copy.unlink(missing_ok=True)
    copy.with_suffix(".json").unlink(missing_ok=True)


def _has_contents(copy: Path) -> bool:
    try:
        with zipfile.ZipFile(copy):
            return True
    except (*ZIP_ERRORS, OSError):
        return False


class _ChangedError(Exception):
    """The server has another file now; the copy was emptied."""


class _Partial:
    """The sparse copy of one remote file, with the byte ranges that are there."""

    def __init__(self, client: httpx.Client, url: str, copy: Path, progress: Progress) -> None:
        self._client, self._url, self._copy, self._progress = client, url, copy, progress
        self._known = copy.with_suffix(".json")
        self._have: list[Span] = []
        self._size = 0  # of the remote file; 0: not known yet
        self._validator = ""
        self._done, self._total = 0, 0  # bytes, for the progress
        self._restore()

    def need_contents(self) -> None:
        """Download the end of the zip until its table of contents is there."""
        for count in TAIL_BYTES:
            self.need_tail(count)
            if _has_contents(self._copy) or self._have == [(0, self._size)]:
                return

    def need_tail(self, count: int) -> None:
        """Download the last `count` bytes, or all of a file that is shorter."""
        if self._size:
            self.need([(max(0, self._size - count), self._size)])
        else:
            self._retried(lambda: self._ask(f"bytes=-{count}"), lambda: bool(self._size))
            self.need_tail(count)  # what a cut left out

    def need(self, spans: Iterable[Span]) -> None:
        """Download these byte ranges, but for what is there."""
        gaps = list(_gaps(spans, self._have))
        total = sum(end - start for start, end in gaps)
        free = shutil.disk_usage(self._copy.parent).free
        if free < total + _HEADROOM_BYTES:
            raise RuntimeStoreError(
                f"not enough disk space in {self._copy.parent}: fleet has to download "
                f"{human_bytes(total)}, but only {human_bytes(free)} are free",
                hint="free some disk space, or set FLEET_HOME to a folder on a larger disk",
            )
        self._done, self._total = 0, total
        for gap in gaps:
            self._retried(
                lambda gap=gap: self._ask_rest(gap),  # type: ignore[misc]
                lambda gap=gap: not list(_gaps([gap], self._have)),  # type: ignore[misc]
            )

    def _ask_rest(self, gap: Span) -> None:
        for start, end in _gaps([gap], self._have):
            self._ask(f"bytes={start}-{end - 1}")

    def _retried(self, ask: Callable[[], None], done: Callable[[], bool]) -> None:
        """Ask until `done`; give up after some tries in which no byte came."""
        tries = 0
        while not done():
            before = _length(self._have)
            try:
                ask()
            except httpx.TransportError as error:
                tries = 0 if _length(self._have) > before else tries + 1
                if tries >= TRIES_WITHOUT_BYTES:
                    raise self._broken(error) from error
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise self._broken(error) from error

    def _ask(self, wanted: str) -> None:
        """Send one request and store the bytes of its answer."""
        headers = {"Accept-Encoding": "identity", "Range": wanted}
        if self._validator:
            headers["If-Range"] = self._validator
        with self._client.stream("GET", self._url, headers=headers) as answer:
            self._refuse(answer)
            match = _RANGE.match(answer.headers.get("Content-Range", ""))
            whole = answer.status_code == httpx.codes.OK
            if not whole and match is None:
                raise httpx.RemoteProtocolError("the server does not say which range it sends")
            length = answer.headers.get("Content-Length", "")
            start = 0 if whole or match is None else int(match[1])
            size = int(match[3]) if match else int(length) if length.isdigit() else 0
            self._begin(size, validator_of(answer), whole=whole)
            self._store(answer, start)
            self._size = self._size or _length(self._have)

    def _refuse(self, answer: httpx.Response) -> None:
        """Raise RuntimeStoreError for an error and for a page instead of a zip."""
        manually = (
            f"download {self._url} in a browser, then: fleet runtime add FILE.zip --target TARGET"
        )
        if answer.status_code not in {httpx.codes.OK, httpx.codes.PARTIAL_CONTENT}:
            raise RuntimeStoreError(
                f"the server refuses the download of {self._url}: {answer.status_code} "
                f"{answer.reason_phrase}",
                hint=f"check the version; or {manually}",
            )
        if answer.headers.get("Content-Type", "").lower().startswith("text/html"):
            where = f" ({answer.url.host} asks for a login?)" if answer.history else ""
            raise RuntimeStoreError(
                f"the server sent a web page instead of the zip file {self._url}{where}",
                hint=manually,
            )

    def _begin(self, size: int, validator: str, *, whole: bool) -> None:
        """Make room for the file. Raises _ChangedError if it is another one than before."""
        changed = self._size and (size, validator) != (self._size, self._validator)
        if whole or changed or not self._size:
            forget(self._copy)
            self._have = []
            with self._copy.open("wb") as out:
                out.truncate(size)
        if changed:
            raise _ChangedError
        self._size, self._validator = size, validator
        if whole:
            self._done, self._total = 0, size

    def _store(self, answer: httpx.Response, start: int) -> None:
        at = saved = start
        try:
            with self._copy.open("r+b") as out:
                out.seek(start)
                for chunk in answer.iter_raw():
                    out.write(chunk)
                    self._have = _joined([*self._have, (at, at + len(chunk))])
                    at += len(chunk)
                    self._done += len(chunk)
                    self._progress("downloading", self._done, self._total or None)
                    if at - saved >= _SAVE_BYTES:
                        out.flush()
                        self._save()
                        saved = at
        finally:
            self._save()

    def _save(self) -> None:
        known = {"size": self._size, "if_range": self._validator, "have": self._have}
        self._known.write_text(json.dumps(known), "utf-8")

    def _restore(self) -> None:
        """Take up an earlier try, if its file can be recognised on the server."""
        try:
            known = json.loads(self._known.read_text("utf-8"))
            have = [(int(start), int(end)) for start, end in known["have"]]
            size, validator = int(known["size"]), str(known["if_range"])
            usable = validator and self._copy.stat().st_size == size
        except (OSError, ValueError, KeyError, TypeError):
            return
        if usable:
            self._have, self._size, self._validator = have, size, validator

    def _broken(self, error: Exception) -> RuntimeStoreError:
        return RuntimeStoreError(
            f"fleet could not download {self._url}: {str(error) or type(error).__name__}",
            hint="run the command again; the download continues after "
            f"{_length(self._have) / 1e6:.1f} MB",
        )


def _length(spans: Iterable[Span]) -> int:
    return sum(end - start for start, end in spans)


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Return the union of byte ranges, in order, without overlaps."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _gaps(wanted: Iterable[Span], have: Iterable[Span]) -> list[Span]:
    """Return the parts of `wanted` that are not in `have`."""
    gaps = []
    there = _joined(have)
    for first, end in _joined(wanted):
        start = first
        for known_start, known_end in there:
            if known_end <= start or known_start >= end:
                continue
            if known_start > start:
                gaps.append((start, known_start))
            start = max(start, known_end)
        if start < end:
            gaps.append((start, end))
    return gaps
