"""The vendor's SDK by version: only what a target needs is downloaded."""

from __future__ import annotations

import hashlib
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.model.errors import InputError, RuntimeStoreError
from fleet.runtimes import download
from fleet.runtimes.releases import sdk_command, sdk_version
from fleet.runtimes.store import RuntimeStore
from tests.runtimes.fakes import ARM, BUILD, sdk_files, target_files, write_zip
from tests.runtimes.webserver import FileServer, serve

VERSION = "2.51.0.260929"
OTHER_TARGET = "aarch64-android"


def sdk_zip(path: Path, build: str = BUILD) -> bytes:
    """An SDK of two targets, with many megabytes that no target needs before and between them."""
    noise = random.Random(1)
    files = {"docs/a.bin": noise.randbytes(6_000_000), **sdk_files(build)}
    files["docs/b.bin"] = noise.randbytes(6_000_000)
    files |= {
        f"lib/{OTHER_TARGET}/{name}": data + noise.randbytes(50_000)
        for name, data in target_files(build).items()
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            archive.writestr(f"qairt/{VERSION}/{name}", data)
    return path.read_bytes()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setattr(download, "TAIL_BYTES", (1 << 14, 1 << 20))
    with serve(sdk_zip(tmp_path / "sdk.zip")) as running:
        address = running.url.replace("sdk.zip", "{version}/v{version}.zip")
        monkeypatch.setenv("FLEET_SDK_URL", address)
        yield running


def left(store: RuntimeStore) -> list[str]:
    folder = store.root / ".downloads"
    return sorted(path.suffix for path in folder.iterdir() if path.suffix != ".lock")


def test_only_the_files_of_the_target_are_downloaded(
    store: RuntimeStore, server: FileServer
) -> None:
    steps: list[tuple[str, int, int | None]] = []
    runtime = store.fetch_sdk(VERSION, target=ARM, progress=lambda *step: steps.append(step))
    assert (runtime.build_id, runtime.targets) == (BUILD, (ARM,))
    assert runtime.hexagon_archs == ("v73",)
    assert f"bin/{ARM}/genie-t2t-run" in {item.path for item in runtime.libraries}
    assert server.sent < len(server.content) * 0.15
    assert all(done <= (total or done) for _, done, total in steps)
    assert (runtime.source.kind, runtime.source.name) == ("sdk-parts", f"v{VERSION}.zip")
    assert left(store) == []
    whole = RuntimeStore(store.root.parent / "whole")
    zipped = store.root.parent / "sdk.zip"
    zipped.write_bytes(server.content)
    assert whole.add(zipped, targets=(ARM,)).libraries == runtime.libraries
    server.seen.clear()
    assert not store.fetch_sdk(BUILD, target=ARM).changed
    assert server.seen == []


def test_a_second_target_joins_the_same_runtime(store: RuntimeStore, server: FileServer) -> None:
    store.fetch_sdk(VERSION, target=ARM)
    runtime = store.fetch_sdk(VERSION, target=OTHER_TARGET)
    assert runtime.targets == (OTHER_TARGET, ARM)
    assert len(runtime.sources) == 1
    assert not store.problems()


def test_a_cut_connection_is_resumed(store: RuntimeStore, server: FileServer) -> None:
    server.cuts = [5000, 1, 0, 300, 100]
    assert store.fetch_sdk(VERSION, target=ARM).build_id == BUILD
    assert server.sent < len(server.content) * 0.15


def test_the_next_call_resumes_where_the_last_one_gave_up(
    store: RuntimeStore, server: FileServer
) -> None:
    size = len(server.content)
    server.cuts = [1 << 14, *[0] * download.TRIES_WITHOUT_BYTES]
    with pytest.raises(RuntimeStoreError, match="could not download") as caught:
        store.fetch_sdk(VERSION, target=ARM)
    assert "the download continues after" in caught.value.hint
    assert left(store) == [".json", ".partial"]
    server.seen.clear()
    assert store.fetch_sdk(VERSION, target=ARM).build_id == BUILD
    assert f"bytes=-{1 << 14}" not in {wanted for wanted, _ in server.seen}
    assert {condition for _, condition in server.seen} == {'"one"'}
    assert server.sent < size * 0.15


def test_a_file_that_changed_meanwhile_starts_again(
    store: RuntimeStore, server: FileServer, tmp_path: Path
) -> None:
    server.cuts = [1 << 14, *[0] * download.TRIES_WITHOUT_BYTES]
    with pytest.raises(RuntimeStoreError):
        store.fetch_sdk(VERSION, target=ARM)
    server.content = sdk_zip(tmp_path / "y.zip", BUILD.replace("181845", "181846"))
    server.etag = '"two"'
    assert store.fetch_sdk(VERSION, target=ARM).build_id.endswith("181846")


@pytest.mark.parametrize("cuts", [[], [1000, 20_000]])
def test_a_server_without_ranges_sends_the_whole_file(
    store: RuntimeStore, server: FileServer, cuts: list[int]
) -> None:
    server.ranges = False
    server.cuts = cuts
    assert store.fetch_sdk(VERSION, target=ARM).build_id == BUILD
    assert left(store) == []


def test_without_a_strong_validator_nothing_is_resumed_by_the_next_call(
    store: RuntimeStore, server: FileServer
) -> None:
    server.etag = 'W/"weak"'
    server.cuts = [1 << 14, *[0] * download.TRIES_WITHOUT_BYTES]
    with pytest.raises(RuntimeStoreError):
        store.fetch_sdk(VERSION, target=ARM)
    server.seen.clear()
    assert store.fetch_sdk(VERSION, target=ARM).build_id == BUILD
    assert server.seen[0] == (f"bytes=-{1 << 14}", None)


def test_a_login_page_is_named_with_the_way_by_hand(
    store: RuntimeStore, server: FileServer
) -> None:
    server.content, server.type = b"<html>Sign in</html>", "text/html; charset=utf-8"
    with pytest.raises(RuntimeStoreError, match="sent a web page instead of the file") as caught:
        store.fetch_sdk(VERSION, target=ARM)
    assert f"{server.url.replace('sdk.zip', '')}{VERSION}/v{VERSION}.zip" in caught.value.hint
    assert "fleet runtime add" in caught.value.hint
    assert store.list() == ()


@pytest.mark.parametrize("content", [b"", b"no zip", bytes(3_000_000)])
def test_something_that_is_no_zip(store: RuntimeStore, server: FileServer, content: bytes) -> None:
    server.content = content
    with pytest.raises(RuntimeStoreError, match=r"not a zip file|could not download"):
        store.fetch_sdk(VERSION, target=ARM)


@pytest.mark.parametrize("status", [403, 404, 500])
def test_a_refusal(store: RuntimeStore, server: FileServer, status: int) -> None:
    server.status = status
    with pytest.raises(RuntimeStoreError, match=f": {status} "):
        store.fetch_sdk(VERSION, target=ARM)
    assert len(server.seen) == 1


def test_a_given_hash_downloads_the_whole_zip_and_compares(
    store: RuntimeStore, server: FileServer
) -> None:
    with pytest.raises(RuntimeStoreError, match="instead of 0000"):
        store.fetch_sdk(VERSION, target=ARM, sha256="0" * 64)
    assert store.list() == ()
    digest = hashlib.sha256(server.content).hexdigest()
    runtime = store.fetch_sdk(VERSION, target=ARM, sha256=digest)
    assert (runtime.source.kind, runtime.source.sha256) == ("sdk-zip", digest)


def test_the_contents_are_pinned_at_first_sight(
    store: RuntimeStore, server: FileServer, tmp_path: Path
) -> None:
    store.fetch_sdk(VERSION, target=ARM)
    server.content = write_zip(tmp_path / "y.zip", sdk_files(target=OTHER_TARGET)).read_bytes()
    with pytest.raises(RuntimeStoreError, match="have changed since fleet first downloaded it"):
        store.fetch_sdk(VERSION, target=OTHER_TARGET)


def test_a_damaged_member_is_found(store: RuntimeStore, server: FileServer) -> None:
    data = bytearray(server.content)
    at = data.index(b"libQnnHtp.so") + 60
    data[at] ^= 1
    server.content = bytes(data)
    with pytest.raises(RuntimeStoreError, match=r"cannot extract .*libQnnHtp\.so"):
        store.fetch_sdk(VERSION, target=ARM)
    assert store.list() == ()


def test_a_missing_file_of_the_store_has_its_command(
    store: RuntimeStore, server: FileServer
) -> None:
    runtime = store.fetch_sdk(VERSION, target=ARM)
    (runtime.root / f"lib/{ARM}/libGenie.so").unlink()
    with pytest.raises(RuntimeStoreError, match="is damaged") as caught:
        store.get(VERSION)
    assert caught.value.hint == f"fleet runtime fetch {BUILD} --sdk --target {ARM}"
    assert store.fetch_sdk(BUILD, target=ARM).changed
    assert not store.problems()


def test_the_version_needs_its_date(store: RuntimeStore) -> None:
    assert sdk_version("v2.45.0.260326154327_12345") == "2.45.0.260326"
    with pytest.raises(InputError, match="the date is missing"):
        store.fetch_sdk("2.45.0", target=ARM)
    assert sdk_command("2.45.0", ARM).startswith("fleet runtime add ")
    assert sdk_command(BUILD, ARM) == f"fleet runtime fetch {VERSION} --sdk --target {ARM}"


@pytest.mark.parametrize("address", ["ftp://x/{version}", "https://example.com/sdk.zip"])
def test_an_unusable_address_is_named(
    store: RuntimeStore, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("FLEET_SDK_URL", address)
    with pytest.raises(InputError, match="FLEET_SDK_URL"):
        store.fetch_sdk(VERSION, target=ARM)


def test_offline_nothing_is_asked(store: RuntimeStore, server: FileServer) -> None:
    with pytest.raises(RuntimeStoreError, match="--offline forbids"):
        store.fetch_sdk(VERSION, target=ARM, offline=True)
    assert server.seen == []


@pytest.mark.parametrize("seed", range(20))
def test_gaps_are_what_is_wanted_and_not_there(seed: int) -> None:
    draw = random.Random(seed)

    def some() -> list[tuple[int, int]]:
        cuts = sorted(draw.sample(range(60), 2 * draw.randint(0, 5)))
        return list(zip(cuts[::2], cuts[1::2], strict=True))

    wanted, have = some(), some()

    def bytes_of(spans: list[tuple[int, int]]) -> set[int]:
        return {at for start, end in spans for at in range(start, end)}

    gaps = download._gaps(wanted, have)
    assert bytes_of(gaps) == bytes_of(wanted) - bytes_of(have)
    assert len(bytes_of(gaps)) == sum(end - start for start, end in gaps)


def test_a_server_that_sends_less_than_a_range_is_given_up(
    store: RuntimeStore, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer looks whole and has no byte of what was asked for."""
    server.shift = 1 << 20
    with pytest.raises(RuntimeStoreError, match="the server sent less than fleet requested"):
        store.fetch_sdk(VERSION, target=ARM)
    assert len(server.seen) < 3 * download.TRIES_WITHOUT_BYTES
