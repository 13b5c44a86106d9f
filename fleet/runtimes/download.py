"""Downloads of a file with a known SHA-256, or of the wanted members of a zip only.

Both are streamed and resumed. A whole file is verified before it is used. The copy of a zip is
sparse: it has the size of the remote file, with holes for the parts that were not requested. The
end of the zip with its table of contents is downloaded first. A server that ignores range requests
sends the whole file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import httpx

from fleet.model.errors import InputError, RuntimeStoreError
from fleet.model.files import human_bytes, sha256_file
from fleet.model.home import private_folder
from fleet.runtimes.stage import Progress, file_lock
from fleet.runtimes.tree import ZIP_ERRORS, open_zip

Span = tuple[int, int]  # first byte, byte after the last one

CONNECT_SECONDS = 15.0
# a server that sends nothing for this long is gone; the total time is not limited
SILENCE_SECONDS = 60.0
_WAIT_SECONDS = 3600.0  # another process downloads the same file: use its result
TRIES_WITHOUT_BYTES = 4
_SHA256 = re.compile(r"^[0-9a-f]{64}$")
_RANGE = re.compile(r"^bytes (\d+)-\d+/(\d+|\*)$")
TAIL_BYTES = (1 << 20, 1 << 23, 1 << 26)  # the table of contents of QAIRT 2.25 has 0.6 MB
_SAVE_BYTES = 1 << 23  # a killed process has to download at most this much again
_CHANGES = 3  # of the file on the server, before fleet gives up
_HEADROOM_BYTES = 50_000_000


def checked_digest(url: str, sha256: str | None) -> str:
    """Return the SHA-256 in lower case.

    Raises InputError if it is missing or invalid, or for a bad URL.
    """
    if not url.lower().startswith(("https://", "http://")):
        raise InputError(
            f"fleet does not download '{url}', because the URL does not begin with https://",
            hint="give a URL that begins with https://, or the path of a file",
        )
    if not sha256:
        raise InputError(
            "fleet needs the option --sha256 to check the file that it downloads",
            hint=f"fleet runtime add {url} --sha256 HEX (the SHA-256 that the publisher states)",
        )
    if not _SHA256.match(sha256.lower()):
        raise InputError(f"'{sha256}' is not a SHA-256", hint="give 64 hexadecimal digits")
    return sha256.lower()


@contextlib.contextmanager
def part_lock(folder: Path, digest: str) -> Iterator[None]:
    """Hold the download lock of a file. Raises RuntimeStoreError after an hour of waiting."""
    with file_lock(folder / f"{digest}.lock", _WAIT_SECONDS):
        yield


def download(url: str, digest: str, folder: Path, progress: Progress) -> Path:
    """Return the verified file in `folder`, resumed from the `.part` of an earlier attempt.

    Raises RuntimeStoreError if the server refuses, stays silent, or sends another file (which is
    then deleted).
    """
    private_folder(folder)
    part = folder / f"{digest}.part"
    advice = "check the URL", "fleet runtime add FILE"
    _fill(url, part, progress, advice, _Partial.need_whole)
    got = sha256_file(part)
    if got != digest:
        forget(part)
        raise RuntimeStoreError(
            f"the file at {url} has the SHA-256 {got} instead of {digest}; fleet deleted the file",
            hint="compare the URL and the --sha256 with what the publisher states",
        )
    _known(part).unlink(missing_ok=True)
    return part.replace(folder / digest)


def validator_of(answer: httpx.Response) -> str:
    """Return the value for If-Range (RFC 9110, 13.1.5): a strong ETag, else Last-Modified."""
    tag = str(answer.headers.get("ETag", ""))
    return tag if tag and not tag.startswith("W/") else answer.headers.get("Last-Modified", "")


def _known(copy: Path) -> Path:
    """Return the file that describes a partial copy."""
    return copy.with_suffix(".json")


def forget(copy: Path) -> None:
    """Delete a partial copy and its metadata."""
    copy.unlink(missing_ok=True)
    _known(copy).unlink(missing_ok=True)


def _retry(url: str, ask: Callable[[], None], have: Callable[[], int]) -> None:
    """Repeat `ask` until it succeeds; give up after TRIES_WITHOUT_BYTES without a byte.

    `have` returns the number of downloaded bytes. Raises RuntimeStoreError.
    """
    tries = 0
    while True:
        before = have()
        try:
            return ask()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            tries = 0 if have() > before else tries + 1
            if isinstance(error, httpx.TransportError) and tries < TRIES_WITHOUT_BYTES:
                continue
            raise RuntimeStoreError(
                f"fleet could not download {url}: {str(error) or type(error).__name__}",
                hint=f"run the command again; the download continues after {have() / 1e6:.1f} MB",
            ) from error


def _refuse(answer: httpx.Response, url: str, check: str, add: str) -> None:
    """Raise RuntimeStoreError for an error, and for a web page instead of the file.

    The hint describes the manual download, which ends with the command `add`.
    """
    manually = f"download {url} in a browser, then: {add}"
    if answer.status_code not in {httpx.codes.OK, httpx.codes.PARTIAL_CONTENT}:
        raise RuntimeStoreError(
            f"the server refuses the download of {url}: {answer.status_code} "
            f"{answer.reason_phrase}",
            hint=f"{check}; or {manually}",
        )
    if answer.headers.get("Content-Type", "").lower().startswith("text/html"):
        where = f" ({answer.url.host} asks for a login?)" if answer.history else ""
        raise RuntimeStoreError(
            f"the server sent a web page instead of the file {url}{where}", hint=manually
        )


def download_members(
    url: str, folder: Path, wanted: Callable[[Path], Iterable[Span]], progress: Progress
) -> Path:
    """Download the byte ranges of the zip at `url` that `wanted` returns; return the sparse copy.

    `wanted` gets the copy after its table of contents was downloaded. Data of an earlier attempt in
    `folder` is used if the server still has the same file. Raises RuntimeStoreError if the server
    refuses, stays silent, or sends a file that is not a zip.
    """
    private_folder(folder)
    copy = folder / f"{key_of(url)}.partial"

    def work(part: _Partial) -> None:
        part.need_contents()
        part.need(wanted(copy))

    advice = "check the version", "fleet runtime add FILE.zip --target TARGET"
    _fill(url, copy, progress, advice, work)
    return copy


def _fill(
    url: str,
    copy: Path,
    progress: Progress,
    advice: tuple[str, str],
    work: Callable[[_Partial], None],
) -> None:
    """Do the work on the copy, again from the beginning if the file on the server changes."""
    timeout = httpx.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
    with httpx.Client(timeout=timeout, follow_redirects=True) as client:
        for _ in range(_CHANGES):
            with contextlib.suppress(_ChangedError):
                work(_Partial(client, url, copy, progress, advice))
                return
    raise RuntimeStoreError(
        f"the file at {url} changed several times during the download",
        hint="wait until the publisher has finished, then run the command again",
    )


def key_of(url: str) -> str:
    """Return the file name of the sparse copy of `url`."""
    return hashlib.sha256(url.encode()).hexdigest()


def contents_digest(path: Path) -> str:
    """Return the SHA-256 of a zip's table of contents: names, sizes and checksums of all members.

    Raises RuntimeStoreError if the file is not a zip.
    """
    with open_zip(path) as archive, path.open("rb") as stream:
        stream.seek(archive.contents_start)
        return hashlib.sha256(stream.read()).hexdigest()


def _has_contents(copy: Path) -> bool:
    try:
        with zipfile.ZipFile(copy):
            return True
    except (*ZIP_ERRORS, OSError):
        return False


class _ChangedError(Exception):
    """The server has another file now, and the copy was emptied."""


class _Partial:
    """The sparse copy of one remote file, with the downloaded byte ranges."""

    def __init__(
        self,
        client: httpx.Client,
        url: str,
        copy: Path,
        progress: Progress,
        advice: tuple[str, str],
    ) -> None:
        self._client, self._url, self._copy, self._progress = client, url, copy, progress
        self._advice = advice  # what to check if the server refuses, and the command instead
        self._known = _known(copy)
        self._have: list[Span] = []
        self._size = 0  # of the remote file; 0: not known yet
        self._validator = ""
        self._done, self._total = 0, 0  # bytes, for the progress
        self._restore()

    def need_whole(self) -> None:
        """Download the whole file. Without a strong validator an interruption begins again."""
        self._retry(self._ask_whole)

    def _ask_whole(self) -> None:
        if self._have and self._validator:
            self._done, self._total = _length(self._have), self._size
            self._ask_rest((0, self._size))
        else:
            self._ask("")
        if self._have != [(0, self._size)] and self._size:
            raise httpx.RemoteProtocolError("the server sent less than fleet requested")

    def need_contents(self) -> None:
        """Download the end of the zip until its table of contents is complete."""
        for count in TAIL_BYTES:
            self.need_tail(count)
            if _has_contents(self._copy) or self._have == [(0, self._size)]:
                return

    def need_tail(self, count: int) -> None:
        """Download the last `count` bytes, or all of a shorter file."""
        if self._size:
            self.need([(max(0, self._size - count), self._size)])
        else:
            self._retry(lambda: None if self._size else self._ask(f"bytes=-{count}"))
            self.need_tail(count)  # the part after an interruption

    def need(self, spans: Iterable[Span]) -> None:
        """Download these byte ranges, except the ones that exist."""
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
            self._retry(partial(self._ask_rest, gap))

    def _retry(self, ask: Callable[[], None]) -> None:
        _retry(self._url, ask, lambda: _length(self._have))

    def _ask_rest(self, gap: Span) -> None:
        for start, end in _gaps([gap], self._have):
            self._ask(f"bytes={start}-{end - 1}")
        if _gaps([gap], self._have):
            raise httpx.RemoteProtocolError("the server sent less than fleet requested")

    def _ask(self, wanted: str) -> None:
        """Send one request, for a range or for everything, and store the bytes of its answer."""
        headers = {"Accept-Encoding": "identity"}
        if wanted:
            headers["Range"] = wanted
        if wanted and self._validator:
            headers["If-Range"] = self._validator
        with self._client.stream("GET", self._url, headers=headers) as answer:
            _refuse(answer, self._url, *self._advice)
            match = _RANGE.match(answer.headers.get("Content-Range", ""))
            whole = answer.status_code == httpx.codes.OK
            if not whole and (match is None or match[2] == "*"):
                raise httpx.RemoteProtocolError("the server does not say which range it sends")
            length = answer.headers.get("Content-Length", "")
            start = 0 if whole or match is None else int(match[1])
            size = int(match[2]) if match else int(length) if length.isdigit() else 0
            self._begin(size, validator_of(answer), whole=whole)
            self._store(answer, start)
            self._size = self._size or _length(self._have)

    def _begin(self, size: int, validator: str, *, whole: bool) -> None:
        """Prepare the copy for a file of `size` bytes; empty it for a `whole` or another file.

        Raises _ChangedError if the file differs from the previous one.
        """
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
        """Resume an earlier attempt if the server can confirm that its file is the same."""
        try:
            known = json.loads(self._known.read_text("utf-8"))
            have = [(int(start), int(end)) for start, end in known["have"]]
            size, validator = int(known["size"]), str(known["if_range"])
            usable = validator and self._copy.stat().st_size == size
        except (OSError, ValueError, KeyError, TypeError):
            return
        if usable:
            self._have, self._size, self._validator = have, size, validator


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
