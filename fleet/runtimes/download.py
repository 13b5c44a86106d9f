"""Download one file of a known SHA-256: streamed, resumed, verified before anyone uses it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from fleet.model.errors import InputError, RuntimeStoreError
from fleet.model.files import sha256_file
from fleet.model.home import private_folder
from fleet.runtimes.lock import file_lock
from fleet.runtimes.stage import Progress

CONNECT_SECONDS = 15.0
SILENCE_SECONDS = 60.0  # a server that sends nothing for this long is gone; the total is open
_WAIT_SECONDS = 3600.0  # another process downloads the same file: take its result
TRIES_WITHOUT_BYTES = 4
_SHA256 = re.compile(r"^[0-9a-f]{64}$")
_RANGE = re.compile(r"^bytes (\d+)-\d+/(\d+|\*)$")


def checked_digest(url: str, sha256: str | None) -> str:
    """The SHA-256 in lower case. Raises InputError for none, a wrong one or a URL unlike http."""
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


@contextmanager
def part_lock(folder: Path, digest: str) -> Iterator[None]:
    """Only one process at a time downloads a file; the next one finds it in the store."""
    with file_lock(folder / f"{digest}.lock", _WAIT_SECONDS):
        yield


def download(url: str, digest: str, folder: Path, progress: Progress) -> Path:
    """The verified file in `folder`. What an earlier try left in `.part` is continued.

    Raises RuntimeStoreError when the server refuses, stays silent, or sends another file
    (which is then removed).
    """
    private_folder(folder)
    part = folder / f"{digest}.part"
    tries = 0
    timeout = httpx.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
    with httpx.Client(timeout=timeout, follow_redirects=True) as client:
        while True:
            before = _size(part)
            try:
                _stream(client, url, part, progress)
                break
            except httpx.TransportError as error:
                tries = 0 if _size(part) > before else tries + 1
                if tries >= TRIES_WITHOUT_BYTES:
                    raise _broken(url, part, error) from error
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise _broken(url, part, error) from error
    got = sha256_file(part)
    if got != digest:
        _forget(part)
        raise RuntimeStoreError(
            f"the file at {url} has the SHA-256 {got} instead of {digest}; fleet deleted the file",
            hint="compare the URL and the --sha256 with what the publisher states",
        )
    _validator(part).unlink(missing_ok=True)
    return part.replace(folder / digest)


def _stream(client: httpx.Client, url: str, part: Path, progress: Progress) -> None:
    """One request. Appends to `part` when the server proves that it is the same file."""
    have = _size(part)
    validator = _read_validator(part) if have else ""
    headers = {"Accept-Encoding": "identity"}
    if have and validator:
        headers |= {"Range": f"bytes={have}-", "If-Range": validator}
    with client.stream("GET", url, headers=headers) as answer:
        if answer.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            _finish_or_forget(answer, part, have)
            return
        if answer.status_code not in {httpx.codes.OK, httpx.codes.PARTIAL_CONTENT}:
            raise RuntimeStoreError(
                f"the server refuses the download of {url}: {answer.status_code} "
                f"{answer.reason_phrase}",
                hint="check the URL, or download the file in a browser, then: fleet "
                "runtime add FILE",
            )
        start = _start(answer) if answer.status_code == httpx.codes.PARTIAL_CONTENT else 0
        if start not in {0, have}:
            _forget(part)
            raise httpx.RemoteProtocolError(
                "the server sent another range of the file than fleet requested"
            )
        _append(answer, part, start, progress)


def _append(answer: httpx.Response, part: Path, start: int, progress: Progress) -> None:
    _write_validator(part, answer)
    length = answer.headers.get("Content-Length", "")
    total = start + int(length) if length.isdigit() else None
    done = start
    with part.open("ab" if start else "wb") as out:
        for chunk in answer.iter_raw():  # no chunk size: it would hold back the last bytes
            out.write(chunk)
            done += len(chunk)
            progress("downloading", done, total)
    if total is not None and done < total:
        raise httpx.RemoteProtocolError(f"the server sent only {done} of {total} bytes")


def _finish_or_forget(answer: httpx.Response, part: Path, have: int) -> None:
    """416: everything is here already, or the file behind the URL is another one."""
    if answer.headers.get("Content-Range") != f"bytes */{have}":
        _forget(part)
        raise httpx.RemoteProtocolError("the file on the server has become shorter")


def _start(answer: httpx.Response) -> int:
    match = _RANGE.match(answer.headers.get("Content-Range", ""))
    return int(match[1]) if match else -1


def validator_of(answer: httpx.Response) -> str:
    """Return the value for If-Range (RFC 9110, 13.1.5): a strong ETag, else Last-Modified."""
    tag = str(answer.headers.get("ETag", ""))
    return tag if tag and not tag.startswith("W/") else answer.headers.get("Last-Modified", "")


def _write_validator(part: Path, answer: httpx.Response) -> None:
    _validator(part).write_text(json.dumps({"if_range": validator_of(answer)}), "utf-8")


def _read_validator(part: Path) -> str:
    try:
        return str(json.loads(_validator(part).read_text("utf-8"))["if_range"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _validator(part: Path) -> Path:
    return part.with_suffix(".json")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _validator(part).unlink(missing_ok=True)


def _broken(url: str, part: Path, error: Exception) -> RuntimeStoreError:
    return RuntimeStoreError(
        f"fleet could not download {url}: {str(error) or type(error).__name__}",
        hint=f"run the command again; the download continues after {_size(part) / 1e6:.1f} MB",
    )
