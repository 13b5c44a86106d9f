"""The real pip, on an index folder of hand-made wheels; no network."""

from __future__ import annotations

import importlib.metadata
import socket
from pathlib import Path

import pytest

from fleet.data import load
from fleet.model.errors import InputError, RuntimeStoreError
from fleet.runtimes.releases import parse_spec, require_known
from fleet.runtimes.store import RuntimeStore
from tests.runtimes.fakes import ARM, BUILD, OTHER, X86, wheel_files, write_zip

LINUX_ARM = "manylinux_2_34_aarch64"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where pip may look."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setattr("fleet.runtimes.pip.require_known", lambda _: None)  # hand-made wheels
    return folder


@pytest.fixture
def shipped_hashes(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleet.runtimes.pip.require_known", require_known)


def publish(
    index: Path, version: str, python: str, platform: str, *, build: str = BUILD, machine: int = 183
) -> None:
    info = f"onnxruntime_qnn-{version}.dist-info"
    meta = f"Metadata-Version: 2.1\nName: onnxruntime-qnn\nVersion: {version}\n"
    files = wheel_files(build, machine) | {
        f"{info}/METADATA": meta.encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nTag: {python}-{python}-{platform}\n".encode(),
        f"{info}/RECORD": b"",
    }
    write_zip(index / f"onnxruntime_qnn-{version}-{python}-{python}-{platform}.whl", files)


def test_fetch_takes_the_wheel_of_the_target(store: RuntimeStore, index: Path) -> None:
    publish(index, "2.7.0", "cp312", LINUX_ARM)
    publish(index, "2.7.0", "cp312", "manylinux_2_35_x86_64", machine=62)
    seen: list[str] = []
    runtime = store.fetch("2.51.0", target=ARM, progress=lambda what, *_: seen.append(what))
    assert (runtime.targets, runtime.changed) == ((ARM,), True)
    assert seen[0] == "downloading onnxruntime-qnn==2.7.0"
    assert store.fetch(target=X86).targets == (ARM, X86)
    assert {path.name for path in store.root.iterdir()} == {".lock", runtime.id}


def test_the_newest_python_with_a_wheel_is_taken(store: RuntimeStore, index: Path) -> None:
    for python in ("cp311", "cp313"):
        publish(index, "2.7.0", python, LINUX_ARM)
    assert "-cp313-" in store.fetch(target=ARM).source.name


def test_what_is_in_the_store_is_not_fetched(store: RuntimeStore, index: Path) -> None:
    publish(index, "2.7.0", "cp312", LINUX_ARM)
    publish(index, "9.9.0", "cp312", LINUX_ARM, build=OTHER)
    store.fetch("onnxruntime-qnn==2.7.0", target=ARM)
    store.fetch("onnxruntime-qnn==9.9.0", target=ARM)
    for path in index.iterdir():
        path.unlink()
    for spec in ("2.51.0", BUILD, "onnxruntime-qnn==2.7.0", "onnxruntime-qnn==9.9.0", OTHER):
        for offline in (False, True):
            assert store.fetch(spec, target=ARM, offline=offline).changed is False
    assert store.fetch("onnxruntime-qnn", target=ARM, offline=True).build_id == BUILD


def test_without_a_version_the_index_decides(store: RuntimeStore, index: Path) -> None:
    publish(index, "2.6.0", "cp312", LINUX_ARM, build=OTHER)
    assert store.fetch("onnxruntime-qnn", target=ARM).build_id == OTHER
    publish(index, "2.7.0", "cp312", LINUX_ARM)
    assert store.fetch("onnxruntime-qnn", target=ARM).build_id == BUILD
    assert store.fetch("onnxruntime_qnn", target=ARM).changed is False


def test_a_damaged_runtime_is_fetched_again(store: RuntimeStore, index: Path) -> None:
    publish(index, "2.7.0", "cp312", LINUX_ARM)
    runtime = store.fetch(target=ARM)
    (runtime.root / f"lib/{ARM}/libGenie.so").unlink()
    assert store.fetch(target=ARM).changed is True
    store.verify(store.get(BUILD), deep=True)


def test_a_wheel_that_holds_another_qairt_is_an_error(store: RuntimeStore, index: Path) -> None:
    publish(index, "2.7.0", "cp312", LINUX_ARM, build=OTHER)
    with pytest.raises(RuntimeStoreError, match=f"contains QAIRT {OTHER} instead of"):
        store.fetch(target=ARM)


def test_no_such_wheel(store: RuntimeStore, index: Path) -> None:
    with pytest.raises(RuntimeStoreError, match=f"no wheel of .*2.6.0 for {LINUX_ARM}"):
        store.fetch("2.50.40", target=ARM)
    assert list(store.root.iterdir()) == []


def test_offline_names_what_is_missing_and_how_to_get_it(
    store: RuntimeStore, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_process(*_: object, **__: object) -> None:
        raise AssertionError("offline must start no pip")

    monkeypatch.setattr("subprocess.Popen", no_process)
    with pytest.raises(RuntimeStoreError, match=f"QAIRT 2.50.40 for {ARM} is not in") as caught:
        store.fetch("2.50.40", target=ARM, offline=True)
    assert f"fleet runtime fetch 2.50.40 --target {ARM}" in caught.value.hint


def test_no_network(store: RuntimeStore, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_RETRIES", "1")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{closed.getsockname()[1]}/simple")
        with pytest.raises(RuntimeStoreError, match="pip could not download") as caught:
            store.fetch(target=ARM)
    assert "pip config list" in caught.value.hint


def test_without_pip_that_of_uv_is_taken(
    store: RuntimeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("UV", raising=False)
    with pytest.raises(RuntimeStoreError, match="has no pip") as caught:
        store.fetch(target=ARM)
    assert "-m ensurepip" in caught.value.hint
    uv = tmp_path / "uv"
    uv.write_text('#!/bin/sh\necho ERROR: "$@" >&2\nexit 1\n')
    uv.chmod(0o755)
    with pytest.raises(RuntimeStoreError, match=r"tool run --quiet --from pip>=24.1 pip download"):
        store.fetch(target=ARM)


@pytest.mark.parametrize(
    ("spec", "cure"),
    [
        ("2.45.0", "fleet runtime add <QAIRT SDK 2.45.0"),
        ("2.45.0.260326", f"fleet runtime fetch 2.45.0.260326 --sdk --target {ARM}"),
        ("v2.45.0.260326154327_123", f"fleet runtime fetch 2.45.0.260326 --sdk --target {ARM}"),
    ],
)
def test_a_qairt_without_a_wheel(store: RuntimeStore, spec: str, cure: str) -> None:
    with pytest.raises(
        RuntimeStoreError, match="is not in any Python wheel that fleet knows"
    ) as caught:
        store.fetch(spec, target=ARM)
    assert cure in caught.value.hint


def test_a_target_without_a_wheel(store: RuntimeStore) -> None:
    with pytest.raises(
        RuntimeStoreError, match="no Python wheel contains QAIRT for the target aarch64-android"
    ):
        store.fetch(target="aarch64-android")
    with pytest.raises(InputError, match="not a QAIRT target"):
        store.fetch(target="aarch64-linux")


@pytest.mark.parametrize("spec", ["numpy", "numpy==1.0", "2.51", "", "onnxruntime-qnn>=2", "a b"])
def test_other_specs_are_refused(spec: str) -> None:
    with pytest.raises(InputError, match="neither a QAIRT version nor a version of onnx"):
        parse_spec(spec)


def test_a_wheel_that_is_not_the_published_one_is_refused(
    store: RuntimeStore, index: Path, shipped_hashes: None
) -> None:
    publish(index, "2.7.0", "cp312", LINUX_ARM)
    with pytest.raises(RuntimeStoreError, match="but the published SHA-256 is 40f6f8ab") as raised:
        store.fetch("2.51.0", target=ARM)
    assert "pip config list" in str(raised.value.hint)
    assert not store.list()


def test_a_wheel_that_was_never_published_is_refused(
    store: RuntimeStore, index: Path, shipped_hashes: None
) -> None:
    publish(index, "2.7.0", "cp310", LINUX_ARM)
    with pytest.raises(RuntimeStoreError, match=r"not one of the published wheels of 2\.7\.0"):
        store.fetch("2.51.0", target=ARM)


def test_every_release_has_hashes_of_its_wheels() -> None:
    published = load("wheel_hashes")["wheels"]
    for row in load("qairt_releases")["releases"]:
        of_release = [name for name in published if f"-{row['wheel']}-" in name]
        assert len(of_release) == 12  # four Pythons, three platforms
