"""Two readers of context binaries on real files, whole and damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.bundles import context
from fleet.bundles.context import inspect_context
from fleet.model.errors import BundleError

from .conftest import BUILD, DATA, UNKNOWN, V73, V75, V81

FILES = sorted(path.name for path in DATA.glob("*.bin"))
THREE = "three_graphs_v73_soc77_qairt2.51.0.bin"
# name: (build id, soc text, arch, VTCM MB in the text)
EXPECTED = {
    V73: (BUILD, "QCS9100", "v73", 8),
    V75: (BUILD, "SM8650", "v75", 8),
    V81: (BUILD, "SM8850", "v81", 4),
    UNKNOWN: (BUILD, None, None, 4),
    THREE: (BUILD, "QCS9100", "v73", 8),
    "tiny_v73_soc77_qairt2.47.0.bin": ("2.47.0.260601114230", "QCS9100", "v73", 4),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_markers(name: str) -> None:
    found = inspect_context(DATA / name)
    assert (found.build_id, found.soc_type, found.hexagon_arch, found.vtcm_mb) == EXPECTED[name]
    assert found.read_by == "markers"
    assert found.problem == ""
    assert found.soc_model is None


@pytest.mark.qairt
@pytest.mark.parametrize("name", FILES)
def test_both_readers_agree(name: str, qnn_system: Path) -> None:
    told, read = inspect_context(DATA / name, qnn_system), inspect_context(DATA / name)
    assert told.read_by == "libQnnSystem"
    assert told.problem == ""
    assert told.build_id == read.build_id
    assert told.soc_type == read.soc_type
    assert told.hexagon_arch == read.hexagon_arch
    assert told.vtcm_mb == read.vtcm_mb
    assert told.sha256 == read.sha256


@pytest.mark.qairt
def test_the_library_knows_more(qnn_system: Path) -> None:
    found = inspect_context(DATA / THREE, qnn_system)
    assert len(set(found.graphs)) == 3
    assert (found.soc_model, found.backend_id, found.graph_vtcm_mb) == (77, 6, 8)
    assert (found.backend_api, found.blob_version) == ("5.51.0", "4.0.6")
    assert found.blob_size is not None
    assert found.blob_size < found.size
    old = inspect_context(DATA / "tiny_v73_soc77_qairt2.47.0.bin", qnn_system)
    assert (old.backend_api, old.blob_version) == ("5.47.0", "3.3.4")


@pytest.mark.qairt
def test_arch_68_without_a_soc_model_is_unknown(qnn_system: Path) -> None:
    found = inspect_context(DATA / UNKNOWN, qnn_system)
    assert found.hexagon_arch is None
    assert found.soc_model is None
    assert found.soc_type is None


CUTS: dict[str, Callable[[bytes], bytes]] = {
    "1 byte": lambda data: data[:-1],
    "16 bytes": lambda data: data[:-16],
    "4 KiB": lambda data: data[:-4096],
    "half": lambda data: data[: len(data) // 2],
    "all but 4 KiB": lambda data: data[:4096],
    "all but 8 bytes": lambda data: data[:8],
    "1 byte more": lambda data: data + b"\0",
    "zeroed": lambda data: bytes(len(data)),
    "zeroed head": lambda data: bytes(64) + data[64:],
    "text": lambda data: b"this is an error page\n" * 99,
    "empty": lambda data: b"",
}


@pytest.mark.qairt
@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("name", [V73, "tiny_v73_soc77_qairt2.47.0.bin"])
def test_the_library_finds_damage(name: str, how: str, tmp_path: Path, qnn_system: Path) -> None:
    path = tmp_path / "part.bin"
    path.write_bytes(CUTS[how]((DATA / name).read_bytes()))
    found = inspect_context(path, qnn_system)
    assert found.problem == "the file is empty" if how == "empty" else "30010" in found.problem


@pytest.mark.qairt
def test_what_the_library_does_not_find(tmp_path: Path, qnn_system: Path) -> None:
    """Zeroes in place of the second half, as after a power cut: only a hash finds them."""
    data = (DATA / V73).read_bytes()
    path = tmp_path / "part.bin"
    path.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))
    assert inspect_context(path, qnn_system).problem == ""


@pytest.mark.parametrize("how", ["zeroed", "text", "all but 8 bytes", "empty"])
def test_markers_find_what_is_no_context_binary(how: str, tmp_path: Path) -> None:
    path = tmp_path / "part.bin"
    path.write_bytes(CUTS[how]((DATA / V73).read_bytes()))
    found = inspect_context(path)
    assert found.read_by == "nothing"
    assert ("empty" if how == "empty" else "not a context binary") in found.problem


@pytest.mark.parametrize("library", ["missing.so", "text.so"])
def test_without_a_usable_library_the_markers_are_read(library: str, tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no library")
    found = inspect_context(DATA / V73, tmp_path / library)
    assert found.read_by == "markers"
    assert found.build_id == BUILD


def _reader(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """Another program in place of the reading process."""
    package = folder / "fleet" / "bundles"
    package.mkdir(parents=True)
    for path in (package, package.parent):
        (path / "__init__.py").write_text("")
    (package / "qnnsystem.py").write_text(body)
    monkeypatch.setattr(context, "_PACKAGE_PARENT", str(folder))
    monkeypatch.chdir(folder)


def test_a_crash_of_the_library_is_a_problem_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash = 'import os,signal\nprint(\'{"system": "1"}\', flush=True)\n'
    crash += "os.kill(os.getpid(), signal.SIGSEGV)\n"
    _reader(tmp_path, monkeypatch, crash)
    found = inspect_context(DATA / V73, tmp_path / "lib.so")
    assert "SIGSEGV" in found.problem
    assert found.build_id == BUILD


def test_a_crash_before_the_file_is_the_librarys_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _reader(tmp_path, monkeypatch, "import os,signal\nos.kill(os.getpid(), signal.SIGBUS)\n")
    found = inspect_context(DATA / V73, tmp_path / "lib.so")
    assert (found.read_by, found.problem) == ("markers", "")


def test_a_reader_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hang = 'import signal\nprint(\'{"system": "1"}\', flush=True)\nsignal.pause()\n'
    _reader(tmp_path, monkeypatch, hang)
    monkeypatch.setattr(context, "SECONDS", 2.0)
    assert "within 2 s" in inspect_context(DATA / V73, tmp_path / "lib.so").problem


def test_a_blob_larger_than_the_file_is_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binary = (
        '{"version": 3, "backend_id": 6, "build_id": "v2.51.0.260929181845_7", "core_api": "1",'
        '"backend_api": "5.51.0", "blob_size": 99999999, "blob_version": "4", "soc_model": 77,'
        '"dsp_arch": 73}'
    )
    lines = ['{"system": "1"}', f'{{"binary": {binary}}}', '{"graphs": [{"na']
    _reader(tmp_path, monkeypatch, f"print({chr(10).join(lines)!r})")
    found = inspect_context(DATA / V73, tmp_path / "lib.so")
    assert found.problem.startswith("truncated")
    assert found.build_id == BUILD
    assert found.graphs == ()


@pytest.mark.qairt
def test_a_damaged_build_id(tmp_path: Path, qnn_system: Path) -> None:
    """Found by the fuzz test: the library reads it without a word."""
    data = (DATA / V73).read_bytes()
    at = data.index(b"v2.51.0.")
    path = tmp_path / "part.bin"
    path.write_bytes(data[: at + 6] + b"\0" + data[at + 7 :])
    found = inspect_context(path, qnn_system)
    assert found.problem == "damaged: its QAIRT build id is 'v2.51.'"
    assert found.build_id == BUILD


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="cannot be read"):
        inspect_context(tmp_path / "no.bin")
