from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.model.errors import InputError, RuntimeStoreError
from fleet.runtimes import download
from fleet.runtimes.store import RuntimeStore
from tests.runtimes.fakes import ARM, BUILD, sdk_files, wheel_files, write_zip
from tests.runtimes.webserver import FileServer, serve


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    return write_zip(tmp_path / "sdk.zip", sdk_files(), "qairt/2.51.0.260929/").read_bytes()


@pytest.fixture
def server(content: bytes) -> Iterator[FileServer]:
    with serve(content) as running:
        yield running


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def left(store: RuntimeStore) -> list[str]:
    folder = store.root / ".downloads"
    return sorted(path.suffix for path in folder.iterdir() if path.suffix != ".lock")


def test_an_sdk_by_url(store: RuntimeStore, server: FileServer, content: bytes) -> None:
    seen: list[tuple[str, int, int | None]] = []
    runtime = store.add(
        server.url, sha256=digest(content).upper(), progress=lambda *step: seen.append(step)
    )
    assert (runtime.build_id, runtime.targets) == (BUILD, (ARM,))
    assert (runtime.source.name, runtime.source.sha256) == ("sdk.zip", digest(content))
    assert ("downloading", len(content), len(content)) in seen
    assert left(store) == []
    assert store.add(server.url, sha256=digest(content)).changed is False
    assert len(server.seen) == 1


def test_a_wheel_by_url_through_a_redirect(
    store: RuntimeStore, server: FileServer, tmp_path: Path
) -> None:
    server.content = write_zip(tmp_path / "x.whl", wheel_files()).read_bytes()
    url = server.url.replace("/sdk.zip", "/moved")
    assert store.add(url, sha256=digest(server.content)).source.kind == "wheel"


def test_a_cut_connection_is_resumed_at_the_byte(
    store: RuntimeStore, server: FileServer, content: bytes
) -> None:
    server.cuts = [1000, 500]
    assert store.add(server.url, sha256=digest(content)).build_id == BUILD
    last = len(content) - 1
    assert server.seen == [
        (None, None),
        (f"bytes=1000-{last}", '"one"'),
        (f"bytes=1500-{last}", '"one"'),
    ]


def test_the_next_call_goes_on_where_the_last_one_gave_up(
    store: RuntimeStore, server: FileServer, content: bytes
) -> None:
    server.cuts = [1000, *[0] * download.TRIES_WITHOUT_BYTES]
    with pytest.raises(RuntimeStoreError, match="could not download") as caught:
        store.add(server.url, sha256=digest(content))
    assert "the download continues after" in caught.value.hint
    assert left(store) == [".json", ".part"]
    server.seen.clear()
    assert store.add(server.url, sha256=digest(content)).build_id == BUILD
    assert server.seen == [(f"bytes=1000-{len(content) - 1}", '"one"')]
    assert left(store) == []


def test_a_file_that_changed_meanwhile_starts_again(
    store: RuntimeStore, server: FileServer, tmp_path: Path
) -> None:
    other = write_zip(tmp_path / "x.whl", wheel_files()).read_bytes()
    server.cuts = [1000, *[0] * download.TRIES_WITHOUT_BYTES]
    with pytest.raises(RuntimeStoreError):
        store.add(server.url, sha256=digest(other))
    server.content, server.etag = other, '"two"'
    assert store.add(server.url, sha256=digest(other)).build_id == BUILD


@pytest.mark.parametrize("etag", ['W/"weak"', ""])
def test_without_a_strong_validator_nothing_is_joined(
    store: RuntimeStore, server: FileServer, content: bytes, etag: str
) -> None:
    server.etag = etag
    server.cuts = [1000]
    assert store.add(server.url, sha256=digest(content)).build_id == BUILD
    assert server.seen == [(None, None), (None, None)]


def test_a_server_without_ranges(store: RuntimeStore, server: FileServer, content: bytes) -> None:
    server.ranges = False
    server.cuts = [1000]
    assert store.add(server.url, sha256=digest(content)).build_id == BUILD


def test_a_complete_part_is_used(store: RuntimeStore, server: FileServer, content: bytes) -> None:
    """Killed between the last byte and the check: nothing is requested."""
    folder = store.root / ".downloads"
    folder.mkdir(parents=True)
    (folder / f"{digest(content)}.part").write_bytes(content)
    known = {"size": len(content), "if_range": '"one"', "have": [[0, len(content)]]}
    (folder / f"{digest(content)}.json").write_text(json.dumps(known))
    assert store.add(server.url, sha256=digest(content)).build_id == BUILD
    assert server.seen == []


def test_a_part_that_is_too_long_starts_again(
    store: RuntimeStore, server: FileServer, content: bytes
) -> None:
    folder = store.root / ".downloads"
    folder.mkdir(parents=True)
    (folder / f"{digest(content)}.part").write_bytes(content + b"more")
    known = {"size": len(content), "if_range": '"one"', "have": [[0, len(content)]]}
    (folder / f"{digest(content)}.json").write_text(json.dumps(known))
    assert store.add(server.url, sha256=digest(content)).build_id == BUILD


def test_a_wrong_hash_removes_the_file(
    store: RuntimeStore, server: FileServer, content: bytes
) -> None:
    with pytest.raises(
        RuntimeStoreError, match=f"has the SHA-256 {digest(content)} instead of 0000"
    ):
        store.add(server.url, sha256="0" * 64)
    assert left(store) == []
    assert store.list() == ()


@pytest.mark.parametrize("status", [403, 404, 500])
def test_a_refusal(store: RuntimeStore, server: FileServer, content: bytes, status: int) -> None:
    server.status = status
    with pytest.raises(RuntimeStoreError, match=f": {status} "):
        store.add(server.url, sha256=digest(content))
    assert len(server.seen) == 1
    assert left(store) == []


def test_a_login_page_is_named(store: RuntimeStore, server: FileServer, content: bytes) -> None:
    server.type = "text/html; charset=utf-8"
    with pytest.raises(RuntimeStoreError, match="sent a web page instead of the file") as caught:
        store.add(server.url, sha256=digest(content))
    assert "in a browser, then: fleet runtime add FILE" in caught.value.hint
    assert left(store) == []


def test_a_silent_server(
    store: RuntimeStore, server: FileServer, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "SILENCE_SECONDS", 0.2)
    server.silent.set()
    with pytest.raises(RuntimeStoreError, match="could not download"):
        store.add(server.url, sha256=digest(content))


def test_what_a_url_needs(store: RuntimeStore) -> None:
    with pytest.raises(InputError, match="fleet needs the option --sha256"):
        store.add("https://127.0.0.1/sdk.zip")
    with pytest.raises(InputError, match="not a SHA-256"):
        store.add("https://127.0.0.1/sdk.zip", sha256="abc")
    with pytest.raises(InputError, match="does not begin with https://"):
        store.add("ftp://127.0.0.1/sdk.zip", sha256="0" * 64)
