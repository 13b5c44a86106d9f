"""What a user's own programs are linked with, against release and device."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.bundles.closure import (
    Launch,
    absent,
    device_programs,
    executorch_pair,
    lacking,
    linked,
    linked_files,
    needs,
    newer_glibc,
)
from fleet.model.facts import Facts, Tools
from fleet.model.files import FileRef

from .elves import shared_object

UBUNTU = Facts(os_id="ubuntu", tools=Tools(python3_version="3.10.12"))


def elf(path: Path, *needed: str, elf_type: int = 3) -> Path:
    path.write_bytes(shared_object(needed=needed, elf_type=elf_type))
    return path


def test_what_the_release_has_is_not_asked_for(tmp_path: Path) -> None:
    bench = elf(tmp_path / "llama-bench", "libllama.so", "libc.so.6", "libgomp.so.1")
    llama = elf(tmp_path / "libllama.so", "libgomp.so.1", "libQnnHtp.so")
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/sh\n")
    files = [FileRef(llama, f"lib/{name}", 1, "0" * 64) for name in ("libllama.so", "libQnnHtp.so")]
    wanted = needs(linked_files([bench, llama, script, tmp_path / "gone"]), files)
    assert wanted == {
        "libc.so.6": ("llama-bench",),
        "libgomp.so.1": ("llama-bench", "libllama.so"),
    }
    (finding,) = lacking(wanted, {"libc.so.6"}, UBUNTU)
    assert finding.refuses
    assert "llama-bench and libllama.so would not start: libgomp.so.1" in finding.message
    assert (finding.have, finding.need) == ("no libgomp.so.1", "libgomp.so.1")
    assert "`run: libraries:`" in finding.cure
    assert lacking(wanted, set(wanted), UBUNTU) == ()


def test_a_program_that_is_no_pie_needs_its_libraries_too(tmp_path: Path) -> None:
    fixed = elf(tmp_path / "fixed", "libgomp.so.1", elf_type=2)
    made_by_cc = elf(tmp_path / "object", "libgomp.so.1", elf_type=1)  # no loader takes a .o
    assert needs(linked_files([fixed, made_by_cc]), []) == {"libgomp.so.1": ("fixed",)}


@pytest.mark.parametrize(
    ("library", "facts", "package"),
    [
        ("libgomp.so.1", UBUNTU, "libgomp1"),
        ("libunwind.so.1", UBUNTU, "libc++1"),
        ("libpython3.10.so.1.0", UBUNTU, "libpython3.10"),
        ("libpython3.11.so.1.0", UBUNTU, ""),  # Ubuntu 22.04 has no such package
        ("libgomp.so.1", Facts(os_id="poky"), ""),
        ("libmine.so", UBUNTU, ""),
    ],
)
def test_the_cure_names_a_package_where_the_device_can_have_one(
    library: str, facts: Facts, package: str
) -> None:
    (finding,) = lacking({library: ("qnn-net-run",)}, (), facts)
    assert finding.cure.startswith(f"sudo apt install {package} on" if package else "name a copy")
    assert f"a copy of {library}" in finding.cure


@pytest.mark.parametrize(
    ("library", "qairt", "emulator", "severity"),
    [
        ("libexecutorch_backend_qnn.so", "2.51.0", True, "refuse"),
        ("libqnn_executorch_backend.so", "2.51.0", True, "warn"),
        ("libexecutorch_backend_qnn.so", "2.51.0", False, "warn"),
        ("libexecutorch_backend_qnn.so", "2.49.40", True, None),
        ("libexecutorch_backend_qnn.so", "2.60.0", True, None),
    ],
)
def test_an_executorch_that_fails_on_the_emulator(
    library: str, qairt: str, emulator: bool, severity: str | None
) -> None:
    """Hardware is never refused on what the emulator showed, nor is a backend of the user's own."""
    found = executorch_pair([Path("runner"), Path(library)], qairt, emulator=emulator)
    assert [finding.severity for finding in found] == ([severity] if severity else [])
    for finding in found:
        assert "ExecuTorch 1.5.1" in finding.message
        assert qairt in finding.message
        assert "14001" in finding.message
        assert ("hardware" in finding.message) is not emulator
        assert 'runtime: "2.49.40"' in finding.cure


@pytest.mark.parametrize(
    ("versions", "facts", "need"),
    [
        (
            ("GLIBC_2.17", "GLIBC_2.43", "GLIBC_2.4"),
            Facts(libc="glibc", libc_version="2.36"),
            "2.43",
        ),
        (("GLIBC_2.36",), Facts(libc="glibc", libc_version="2.36"), None),
        (("GLIBC_2.9",), Facts(libc="glibc", libc_version="2.36"), None),
        (("GLIBC_2.17",), Facts(libc="musl", libc_version="1.2.4"), "2.17"),
        (("GLIBC_2.99",), Facts(), None),
        (("GLIBC_PRIVATE", "CXXABI_1.3"), Facts(libc="glibc", libc_version="2.36"), None),
    ],
)
def test_a_c_library_that_is_too_old(
    tmp_path: Path, versions: tuple[str, ...], facts: Facts, need: str | None
) -> None:
    """17 MB were sent before `version GLIBC_2.43 not found` was seen."""
    path = tmp_path / "llama-bench"
    path.write_bytes(shared_object(versions=versions, needed=("libc.so.6",)))
    found = newer_glibc(linked_files([path, tmp_path / "gone"]), [], facts)
    assert [item.need for item in found] == ([f"glibc {need}"] if need else [])
    assert all("llama-bench would not start" in item.message for item in found)
    libc = [FileRef(path, "lib/libc.so.6", 1, "0" * 64)]
    assert newer_glibc(linked_files([path]), libc, facts) == ()


def test_code_of_a_dsp_and_damage_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    for data in (shared_object("hexagon"), b"", b"\x7fELF", shared_object()[:200], b"#!/bin/sh\n"):
        path.write_bytes(data)
        assert linked(path) is None


def test_programs_of_the_device() -> None:
    starts = [Launch(("env", "A=b", "gst-launch-1.0", "x=y"), {}), Launch(("{release}/bin/t",), {}),
              Launch(("/usr/bin/bench", "-v"), {}), Launch(("sh", "-c", "x"), {})]  # fmt: skip
    programs = device_programs(starts)
    assert programs == ("gst-launch-1.0", "/usr/bin/bench", "sh")
    (finding,) = absent(programs, {"sh", "/usr/bin/bench"}, "exec")
    assert "starts the program gst-launch-1.0" in finding.message
