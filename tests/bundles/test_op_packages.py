"""Op packages: what their ELF files say, what the pre-flight makes of it, where they go."""

from __future__ import annotations

import ctypes
import platform
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.bundles.elfsymbols import read_dynamic
from fleet.bundles.op_packages import (
    inspect_op_package,
    net_run_option,
    op_package_files,
    read_library,
    with_op_packages,
)
from fleet.bundles.preflight import preflight
from fleet.bundles.rule import Case
from fleet.facts.soc import identify
from fleet.model.errors import BundleError, InputError
from fleet.model.facts import Soc
from fleet.model.finding import Finding
from fleet.model.op_package import OpPackageSpec
from fleet.runtimes.store import RuntimeStore
from tests import needs

from . import elves
from .conftest import ARM, X86, MakeBundle, make_case, make_facts, make_runtime

PROVIDER = "LLaMAPackageInterfaceProvider"
BUILD = "2.51.0.260929181845"  # the runtime of make_case
OTHER = "2.41.0.251128145156"


class Pair:
    """Two libraries in the folders that the makefile of an op package leaves them in."""

    def __init__(self, root: Path) -> None:
        self.cpu = root / "aarch64-oe-linux-gcc11.2" / "libQnnLLaMAPackage.so"
        self.htp = root / "hexagon-v73" / "libQnnLLaMAPackage.so"
        for path in (self.cpu, self.htp):
            path.parent.mkdir(parents=True)
        self.write_cpu()
        self.write_htp()

    def write_cpu(self, machine: str = "aarch64", build: str = BUILD, **more: Any) -> None:
        text = f"v{build}_119508" if build else ""
        more.setdefault("text", text)
        self.cpu.write_bytes(elves.shared_object(machine, **more))

    def write_htp(self, arch: int = 0x73, build: str = BUILD, **more: Any) -> None:
        text = f"v{build}" if build else ""
        more.setdefault("text", text)
        self.htp.write_bytes(elves.shared_object("hexagon", arch=arch, **more))

    def spec(self, **changes: Any) -> OpPackageSpec:
        return replace(OpPackageSpec("QnnLLaMAPackage", self.cpu, self.htp), **changes)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path / "ops")


@pytest.fixture
def healthy(make_bundle: MakeBundle) -> Case:
    return make_case(make_bundle())


def findings(case: Case, *specs: OpPackageSpec) -> list[Finding]:
    bundle = with_op_packages(case.bundle, specs)
    found = preflight(
        bundle,
        case.runtime,
        case.selection,
        case.target,
        case.facts,
        bytes_to_send=case.bytes_to_send,
        files_to_send=case.files_to_send,
    )
    return [one for one in found if one.rule.startswith("op-package")]


def only(case: Case, *specs: OpPackageSpec) -> Finding:
    (finding,) = findings(case, *specs)
    return finding


# ------------------------------------------------------------------------------- reading


def test_machine_arch_build_and_provider_are_read_from_the_files(pair: Pair) -> None:
    package = inspect_op_package(pair.spec())
    assert [(one.role, one.kind) for one in package.libraries] == [
        ("CPU", "aarch64"),
        ("HTP", "hexagon-v73"),
    ]
    assert package.provider == PROVIDER
    assert package.qairt == BUILD


@pytest.mark.parametrize(("arch", "name"), [(0x68, "v68"), (0x79, "v79"), (0x81, "v81")])
def test_the_hexagon_arch_is_that_of_e_flags_whatever_the_folder_says(
    pair: Pair, arch: int, name: str
) -> None:
    pair.write_htp(arch)
    assert read_library(pair.htp, "HTP", "x.so").hexagon_arch == name


@pytest.mark.parametrize("gnu", [False, True], ids=["DT_HASH", "DT_GNU_HASH"])
@pytest.mark.parametrize("machine", ["aarch64", "hexagon"])
def test_both_hash_tables_of_both_widths_give_all_symbols(
    tmp_path: Path, machine: str, gnu: bool
) -> None:
    path = tmp_path / "x.so"
    names: list[str | elves.Symbol] = [
        "init",
        "QnnOpPackage_interfaceProvider",
        elves.undefined("malloc"),
        "InterfaceProvider",
    ]
    path.write_bytes(elves.shared_object(machine, names, gnu=gnu))
    library = read_library(path, "CPU", "x.so", wanted="init")
    assert library.providers == ("InterfaceProvider", "QnnOpPackage_interfaceProvider")
    assert library.problem == ""


@pytest.mark.parametrize("gnu", [False, True])
def test_a_library_without_symbols_has_no_provider(tmp_path: Path, gnu: bool) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(elves.shared_object(symbols=[], gnu=gnu))
    assert read_library(path, "CPU", "x.so").providers == ()


@pytest.mark.parametrize(
    ("symbol", "why"),
    [
        (elves.undefined(PROVIDER), "is not defined"),
        (elves.data(PROVIDER), "is not a function"),
        (elves.hidden(PROVIDER), "hidden visibility"),
        (f"_Z{len(PROVIDER)}{PROVIDER}P23QnnOpPackage_Interface_t", 'extern "C"'),
        ("OtherInterfaceProvider", "does not export"),
    ],
)
def test_a_provider_that_cannot_be_used_is_no_provider(
    tmp_path: Path, symbol: str | elves.Symbol, why: str
) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(elves.shared_object(symbols=[symbol]))
    library = read_library(path, "CPU", "x.so", wanted=PROVIDER)
    assert why in library.problem
    assert PROVIDER not in library.providers


def test_system_is_read_from_note_and_needed_libraries(tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    for more, system in (
        ({"android": True, "needed": ["libc.so"]}, "android"),
        ({"needed": ["libm.so.6", "libc.so.6"]}, "linux"),
        ({"needed": ["libc.so"]}, None),
    ):
        path.write_bytes(elves.shared_object(**more))
        assert read_library(path, "CPU", "x.so").system == system


X86_HOST = platform.machine() == "x86_64" and platform.system() == "Linux"
SOURCE = f"""
#include <stdio.h>
const char *build = "v{BUILD}_119508";
int {PROVIDER}(void *interface) {{ return build[0] + (interface != 0); }}
static int hiddenInterfaceProvider(void) {{ return 1; }}
int used(void) {{ return puts(build) + hiddenInterfaceProvider(); }}
"""


@pytest.mark.skipif(not X86_HOST, reason="gcc makes no x86_64 files here")
@pytest.mark.parametrize("options", [(), ("-s",), ("-Wl,--hash-style=sysv",)], ids=str)
def test_a_library_of_gcc_says_what_the_loader_of_this_host_finds(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    source, path = tmp_path / "op.c", tmp_path / "libop.so"
    source.write_text(SOURCE)
    subprocess.run(
        [needs.compiler(), "-O1", "-shared", "-fPIC", *options, "-o", str(path), str(source)],
        check=True,
    )
    library = read_library(path, "CPU", "libop_CPU.so", wanted=PROVIDER)
    assert (library.machine, library.system) == ("x86_64", "linux")
    assert library.builds == (BUILD,)
    assert library.providers == (PROVIDER,)
    assert library.problem == ""
    assert hasattr(ctypes.CDLL(str(path)), PROVIDER)


@pytest.mark.qairt
@pytest.mark.parametrize("pattern", ["*Skel.so", "*Stub.so", "libQnnHtp.so"])
def test_real_libraries_are_read_as_pyelftools_reads_them(
    qairt_store: RuntimeStore, pattern: str
) -> None:
    """Hexagon (ELF32) and aarch64 files of a real runtime; a second opinion on every symbol."""
    runtime = qairt_store.find("2.51.0", ARM)
    assert runtime is not None
    paths = sorted(runtime.root.rglob(pattern))
    assert paths
    for path in paths:
        library = read_library(path, "HTP", path.name)
        assert library.builds == (BUILD,)
        if "Skel" in path.name:
            assert library.kind == path.parents[1].name
        with path.open("rb") as stream:
            file = ELFFile(stream)
            table, section = (file.get_section_by_name(one) for one in (".dynsym", ".dynamic"))
            assert isinstance(table, SymbolTableSection)
            assert isinstance(section, DynamicSection)
            symbols = list(table.iter_symbols())
            tags = section.iter_tags("DT_NEEDED")
            needed = tuple(one.needed for one in tags)  # type: ignore[attr-defined]  # by the tag
        dynamic = read_dynamic(path.read_bytes())
        assert dynamic.needed == needed
        assert dynamic.functions == {
            one.name
            for one in symbols
            if one["st_shndx"] != "SHN_UNDEF"
            and one["st_info"]["bind"] in {"STB_GLOBAL", "STB_WEAK"}
            and one["st_info"]["type"] in {"STT_FUNC", "STT_LOOS"}
            and one["st_other"]["visibility"] in {"STV_DEFAULT", "STV_PROTECTED"}
        }


# ------------------------------------------------------------------------------- damage


def refused(path: Path) -> str:
    with pytest.raises(BundleError) as caught:
        read_library(path, "CPU", "x.so")
    assert str(path) in caught.value.message
    assert caught.value.hint
    return caught.value.message


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not an ELF file"),
        (b"#!/bin/sh\n", "not an ELF file"),
        (b"!<arch>\n", "not an ELF file"),
        (b"\x7fELF", "truncated"),
        (elves.shared_object(elf_type=1), "not a shared object"),
        (elves.shared_object(elf_type=2), "not a shared object"),
        (elves.shared_object()[:-1], "its header describes"),
    ],
)
def test_what_is_no_whole_shared_object_is_refused(
    tmp_path: Path, content: bytes, why: str
) -> None:
    path = tmp_path / "libx.so"
    path.write_bytes(content)
    assert why in refused(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    refused(tmp_path / "no.so")
    refused(tmp_path)


WHOLE = {
    "aarch64": elves.shared_object(needed=["libc.so.6"], android=True, gnu=True),
    "hexagon": elves.shared_object("hexagon", arch=0x75, needed=["libc.so"]),
}
FUZZ = settings(
    max_examples=300,
)


@FUZZ
@given(kind=st.sampled_from(sorted(WHOLE)), share=st.floats(0, 1, exclude_max=True))
def test_a_cut_file_is_always_refused_by_name(tmp_path: Path, kind: str, share: float) -> None:
    path = tmp_path / "cut.so"
    path.write_bytes(WHOLE[kind][: int(share * len(WHOLE[kind]))])
    refused(path)


def answers(path: Path, content: bytes) -> None:
    """It is read, or refused by name: nothing else."""
    path.write_bytes(content)
    said = str(path)
    try:
        read_library(path, "CPU", "x.so", wanted=PROVIDER)
    except BundleError as error:
        said = error.message
    assert str(path) in said


@FUZZ
@given(
    kind=st.sampled_from(sorted(WHOLE)),
    changes=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=8)),
        min_size=1,
        max_size=4,
    ),
)
def test_changed_bytes_are_read_or_refused(
    tmp_path: Path, kind: str, changes: list[tuple[float, bytes]]
) -> None:
    content = bytearray(WHOLE[kind])
    for share, new in changes:
        at = int(share * len(content))
        content[at : at + len(new)] = new
    answers(tmp_path / "changed.so", bytes(content))


@FUZZ
@given(
    width=st.sampled_from([b"\x01", b"\x02"]),
    rest=st.binary(max_size=300),
    fill=st.sampled_from([b"\x00", b"\xff", b"\x01"]),
)
def test_garbage_with_the_mark_of_an_elf_is_read_or_refused(
    tmp_path: Path, width: bytes, rest: bytes, fill: bytes
) -> None:
    head = b"\x7fELF" + width + b"\x01\x01" + bytes(9) + b"\x03\x00"
    answers(tmp_path / "garbage.so", head + rest + fill * 200)


# ------------------------------------------------------------------------------ pre-flight


def test_a_pair_of_this_build_and_arch_is_silent(healthy: Case, pair: Pair) -> None:
    assert findings(healthy, pair.spec()) == []
    assert findings(healthy, pair.spec(provider=PROVIDER, qairt="2.51.0")) == []


def test_a_swapped_pair_names_both_files_and_the_cure(healthy: Case, pair: Pair) -> None:
    found = findings(healthy, pair.spec(cpu=pair.htp, htp=pair.cpu))
    assert [(one.rule, one.have, one.need) for one in found] == [
        ("op-package-machine", "hexagon-v73", "aarch64"),
        ("op-package-machine", "aarch64", "hexagon"),
    ]
    assert all(one.refuses and "swap the paths of `cpu:` and `htp:`" in one.cure for one in found)
    assert str(pair.htp) in found[0].message
    assert str(pair.cpu) in found[1].message


def test_one_cpu_library_named_twice_is_not_a_swap(healthy: Case, pair: Pair) -> None:
    finding = only(healthy, pair.spec(htp=pair.cpu))
    assert (finding.have, finding.need) == ("aarch64", "hexagon")
    assert "make htp_" in finding.cure


def test_a_host_library_for_a_device_is_refused(healthy: Case, pair: Pair) -> None:
    pair.write_cpu("x86_64")
    finding = only(healthy, pair.spec())
    assert (finding.rule, finding.have, finding.need) == (
        "op-package-machine", "x86_64", "aarch64",
    )  # fmt: skip
    assert finding.refuses
    assert "exchange" not in finding.cure


def test_a_library_of_android_for_linux_is_refused(healthy: Case, pair: Pair) -> None:
    pair.write_cpu(android=True)
    finding = only(healthy, pair.spec())
    assert (finding.rule, finding.have, finding.need) == (
        "op-package-machine", "android", "linux",
    )  # fmt: skip


def test_without_the_dsp_half_a_device_is_refused(healthy: Case, pair: Pair) -> None:
    finding = only(healthy, pair.spec(htp=None))
    assert finding.refuses
    assert "`htp:`" in finding.cure


def test_a_v73_library_for_a_v75_device_is_refused(healthy: Case, pair: Pair) -> None:
    soc = identify(Soc(kernel_soc_id=675))
    assert soc.hexagon_arch == "v75"
    case = make_case(healthy.bundle, facts=make_facts(soc=soc))
    finding = only(case, pair.spec())
    assert (finding.rule, finding.have, finding.need) == ("op-package-arch", "v73", "v75")
    assert finding.refuses
    assert "make htp_v75" in finding.cure
    assert str(pair.htp) in finding.message


def test_an_unknown_arch_of_the_device_only_warns(healthy: Case, pair: Pair) -> None:
    case = make_case(healthy.bundle, facts=make_facts(soc=Soc()))
    finding = only(case, pair.spec())
    assert (finding.rule, finding.severity) == ("op-package-arch", "warn")


def test_another_qairt_build_is_refused(healthy: Case, pair: Pair) -> None:
    pair.write_cpu(build=OTHER)
    pair.write_htp(build=OTHER)
    found = findings(healthy, pair.spec())
    assert {(one.rule, one.have, one.need) for one in found} == {
        ("op-package-version", OTHER, BUILD)
    }
    assert len(found) == 2
    old = make_case(healthy.bundle, runtime=make_runtime("2.41.0.251128"))
    assert findings(old, pair.spec()) == []


def test_one_old_half_is_refused_by_name(healthy: Case, pair: Pair) -> None:
    pair.write_htp(build=OTHER)
    finding = only(healthy, pair.spec())
    assert str(pair.htp) in finding.message


def test_an_unknown_version_is_refused_until_the_playbook_says_it(
    healthy: Case, pair: Pair
) -> None:
    pair.write_cpu(build="")
    pair.write_htp(build="")
    found = findings(healthy, pair.spec())
    assert {(one.rule, one.have) for one in found} == {("op-package-version", "unknown")}
    assert all("`qairt:`" in one.cure for one in found)
    assert findings(healthy, pair.spec(qairt="2.51.0.260929")) == []
    wrong = findings(healthy, pair.spec(qairt="2.41.0.251128"))
    assert {(one.have, one.need) for one in wrong} == {("2.41.0.251128", BUILD)}


def test_the_file_counts_when_the_playbook_says_something_else(healthy: Case, pair: Pair) -> None:
    found = findings(healthy, pair.spec(qairt="2.41.0"))
    assert {(one.have, one.need) for one in found} == {(BUILD, "2.41.0")}
    assert all("remove `qairt:`" in one.cure for one in found)


def test_two_builds_in_one_file_need_a_word_of_the_playbook(healthy: Case, pair: Pair) -> None:
    pair.write_cpu(text=f"v{BUILD}\0v{OTHER}_1")
    finding = only(healthy, pair.spec())
    assert "contains 2 different QAIRT build ids" in finding.message
    assert findings(healthy, pair.spec(qairt="2.51.0")) == []


@pytest.mark.parametrize(
    "text",
    [
        "2.51.0.260929181845",
        "v2.51.0",
        "v2.51.0.26",
        "v2.51.0.2609291818451",
        "xv2.51.0.260929181845",
        "v1.2.3.4.5",
    ],
)
def test_what_only_looks_like_a_build_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(elves.shared_object(text=text))
    assert read_library(path, "CPU", "x.so").builds == ()


def test_a_wrong_provider_names_what_is_offered(healthy: Case, pair: Pair) -> None:
    found = findings(healthy, pair.spec(provider="LlamaPackageInterfaceProvider"))
    assert len(found) == 2
    assert {one.rule for one in found} == {"op-package-provider"}
    assert all(one.refuses and f"provider: {PROVIDER}" in one.cure for one in found)


def test_two_candidates_are_listed_and_none_is_taken(healthy: Case, pair: Pair) -> None:
    both = (elves.ENTRY, "AInterfaceProvider", "BInterfaceProvider")
    pair.write_cpu(symbols=both)
    pair.write_htp(symbols=both)
    assert inspect_op_package(pair.spec()).provider is None
    finding = only(healthy, pair.spec())
    assert finding.have == "AInterfaceProvider, BInterfaceProvider"
    assert findings(healthy, pair.spec(provider="BInterfaceProvider")) == []


def test_halves_with_different_providers_are_no_pair(healthy: Case, pair: Pair) -> None:
    pair.write_htp(symbols=[elves.ENTRY, "OtherInterfaceProvider"])
    finding = only(healthy, pair.spec())
    assert PROVIDER in finding.message
    assert "OtherInterfaceProvider" in finding.message


def test_no_provider_at_all_says_how_to_export_one(healthy: Case, pair: Pair) -> None:
    pair.write_cpu(symbols=[elves.ENTRY])
    pair.write_htp(symbols=[elves.ENTRY])
    finding = only(healthy, pair.spec())
    assert 'extern "C"' in finding.cure


@pytest.mark.parametrize("name", ["op_pkg_init", "qhpi_init"])
def test_either_entry_will_do(healthy: Case, pair: Pair, name: str) -> None:
    pair.write_cpu(symbols=[name, PROVIDER])
    assert findings(healthy, pair.spec()) == []
    pair.write_cpu(symbols=[elves.data(name), PROVIDER])
    assert only(healthy, pair.spec()).rule == "op-package-entry"


def test_only_libraries_that_do_not_go_along_are_missed(healthy: Case, pair: Pair) -> None:
    needed = ["libQnnHtp.so", "libQnnHtpPrepare.so", "libm.so.6", "libc.so.6"]
    pair.write_cpu(needed=needed)
    pair.write_htp(needed=["libQnnNothing.so", "libc++.so.1"])  # the DSP finds its own
    assert findings(healthy, pair.spec()) == []
    pair.write_cpu(needed=[*needed, "libQnnHtpNew.so"])
    assert only(healthy, pair.spec()).need == "libQnnHtpNew.so"


def test_the_emulator_takes_one_host_library(healthy: Case, pair: Pair) -> None:
    pair.write_cpu("x86_64")
    case = make_case(healthy.bundle, target=X86)
    assert findings(case, pair.spec(htp=None)) == []
    pair.write_htp(0x81, build=OTHER)  # stays on the host
    assert findings(case, pair.spec()) == []


# ----------------------------------------------------------------------- files and options


def test_names_and_folders_of_a_release(pair: Pair) -> None:
    package = inspect_op_package(pair.spec())
    files = op_package_files([package], dsp=True)
    assert {one.name: one.source for one in files} == {
        "lib/libQnnLLaMAPackage_CPU.so": pair.cpu,
        "dsp/libQnnLLaMAPackage_HTP.so": pair.htp,
    }
    host = op_package_files([package], dsp=False)
    assert [one.name for one in host] == ["lib/libQnnLLaMAPackage_CPU.so"]


def test_the_option_of_qnn_net_run(pair: Pair) -> None:
    package = inspect_op_package(pair.spec())
    assert net_run_option([package], dsp=True, lib="{release}/lib") == (
        f"{{release}}/lib/libQnnLLaMAPackage_CPU.so:{PROVIDER}:CPU,"
        f"libQnnLLaMAPackage_HTP.so:{PROVIDER}:HTP"
    )
    assert net_run_option([package], dsp=False, lib="../lib") == (
        f"../lib/libQnnLLaMAPackage_CPU.so:{PROVIDER}"
    )
    assert net_run_option([], dsp=True, lib="lib") == ""
    two = net_run_option([package, replace(package, name="Other")], dsp=False, lib=".")
    assert two == f"./libQnnLLaMAPackage_CPU.so:{PROVIDER},./libOther_CPU.so:{PROVIDER}"


@pytest.mark.parametrize("folder", ["/a,b", "/a:b", ""])
def test_an_option_holds_no_separator(pair: Pair, folder: str) -> None:
    with pytest.raises(InputError):
        net_run_option([inspect_op_package(pair.spec())], dsp=True, lib=folder)


def test_an_option_needs_a_provider(pair: Pair) -> None:
    package = replace(inspect_op_package(pair.spec()), provider=None)
    with pytest.raises(BundleError, match="QnnLLaMAPackage"):
        net_run_option([package], dsp=True, lib="lib")


def test_the_origin_keeps_version_provider_and_kinds(pair: Pair) -> None:
    assert inspect_op_package(pair.spec()).as_origin() == {
        "name": "QnnLLaMAPackage",
        "provider": PROVIDER,
        "qairt": BUILD,
        "libraries": {"CPU": "aarch64", "HTP": "hexagon-v73"},
    }
    pair.write_cpu(build="")
    pair.write_htp(build="")
    assert inspect_op_package(pair.spec(qairt="2.41.0")).qairt == "2.41.0"
    assert inspect_op_package(pair.spec()).qairt is None
