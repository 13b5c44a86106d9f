from __future__ import annotations

from pathlib import Path

import pytest

from fleet.model.errors import RuntimeStoreError
from fleet.model.files import sha256_file
from fleet.runtimes.scan import identify, scan_file
from tests.runtimes.fakes import BUILD, dll, elf, skel


def scan(tmp_path: Path, data: bytes, name: str = "libQnnHtp.so"):  # type: ignore[no-untyped-def]  # noqa: ANN201
    path = tmp_path / "file"
    path.write_bytes(data)
    return scan_file(path, f"lib/t/{name}")


def test_build_id_version_machine_and_hash(tmp_path: Path) -> None:
    found = scan(tmp_path, elf(183, build=BUILD, aisw="2.51.0"))
    assert (found.machine, found.build_id, found.aisw_version) == ("aarch64", BUILD, "2.51.0")
    assert found.sha256 == sha256_file(tmp_path / "file")
    assert found.size == (tmp_path / "file").stat().st_size
    assert found.name == "libQnnHtp.so"


@pytest.mark.parametrize(("flags", "arch"), [(0x68, "v68"), (0x73, "v73"), (0x8081, "v81")])
def test_hexagon_arch_is_the_low_byte_of_the_flags(tmp_path: Path, flags: int, arch: str) -> None:
    found = scan(tmp_path, skel(flags))
    assert (found.machine, found.hexagon_arch) == ("hexagon", arch)


@pytest.mark.parametrize(
    "text",
    ["v2.34.3.250704181830_119508", "hexnn_ver_v2.34.3.250704181830.", "\0v2.34.3.250704181830\0"],
)
def test_build_id_is_compared_without_v_and_suffix(tmp_path: Path, text: str) -> None:
    assert scan(tmp_path, elf() + text.encode()).build_id == "2.34.3.250704181830"


@pytest.mark.parametrize("text", ["2.51.0.260929181845", "v2.51.0.2609291818", "v2.51.0"])
def test_other_numbers_are_no_build_id(tmp_path: Path, text: str) -> None:
    assert scan(tmp_path, elf() + text.encode()).build_id is None


def test_windows_library(tmp_path: Path) -> None:
    found = scan(tmp_path, dll(build=BUILD), "QnnHtp.dll")
    assert (found.machine, found.build_id, found.hexagon_arch) == ("win-arm64", BUILD, None)


def test_unknown_machine_and_plain_files_are_other(tmp_path: Path) -> None:
    assert scan(tmp_path, elf(40)).machine == "other"
    assert scan(tmp_path, b"catalog", "libqnnhtpv73.cat").machine == "other"


@pytest.mark.parametrize("keep", [10, 40, 63, 100, 119, -1])
def test_a_truncated_library_is_named(tmp_path: Path, keep: int) -> None:
    with pytest.raises(RuntimeStoreError, match=r"lib/t/libQnnHtp\.so is damaged"):
        scan(tmp_path, elf(build=BUILD)[:keep])


@pytest.mark.parametrize("keep", [40, 60, 80, -1])
def test_a_truncated_skel_is_named(tmp_path: Path, keep: int) -> None:
    with pytest.raises(RuntimeStoreError, match=r"V73Skel\.so is damaged"):
        scan(tmp_path, skel(0x73)[:keep], "libQnnHtpV73Skel.so")


@pytest.mark.parametrize("keep", [3, 0x41, 0x60, -1])
def test_a_truncated_dll_is_named(tmp_path: Path, keep: int) -> None:
    with pytest.raises(RuntimeStoreError, match=r"QnnHtp\.dll is damaged"):
        scan(tmp_path, dll(build=BUILD)[:keep], "QnnHtp.dll")


@pytest.mark.parametrize(
    ("data", "name", "why"),
    [
        (b"", "libQnnHtp.so", "the file is empty"),
        (b"<html>login</html>", "libQnnHtp.so", "the file is not an ELF file"),
        (b"<html>login</html>", "libc++.so.1.0", "the file is not an ELF file"),
        (b"<html>login</html>", "QnnHtp.dll", "the file is not a Windows library"),
    ],
)
def test_garbage_is_named(tmp_path: Path, data: bytes, name: str, why: str) -> None:
    with pytest.raises(RuntimeStoreError, match=why):
        scan(tmp_path, data, name)


def test_identify_needs_only_the_head() -> None:
    assert identify(skel(0x81)[:64], "x.so") == ("hexagon", "v81")
