"""Op packages of a playbook on their way to a device."""

from __future__ import annotations

import ctypes
import json
import platform
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.engine.deploy.release_builder import ReleaseBuilder
from fleet.model.errors import PreflightError
from fleet.model.op_package import OpPackageSpec
from fleet.model.playbook import Playbook
from tests import needs
from tests.bundles import elves

from .conftest import Bench

pytestmark = pytest.mark.qairt
ARM, X86 = "aarch64-oe-linux-gcc11.2", "x86_64-linux-clang"
BUILD = "2.51.0.260929181845"
PROVIDER = "MyAddInterfaceProvider"
SOURCE = f"""
#include <stdio.h>
const char *build = "v{BUILD}_1";
int op_pkg_init(void *package) {{ return package == 0; }}
int {PROVIDER}(void *interface) {{ return interface == 0 ? puts(build) : 0; }}
"""


def package(folder: Path, machine: str = "aarch64") -> OpPackageSpec:
    cpu, htp = folder / f"{machine}.so", folder / "hexagon.so"
    cpu.write_bytes(elves.shared_object(machine, [elves.ENTRY, PROVIDER], text=f"v{BUILD}"))
    htp.write_bytes(
        elves.shared_object("hexagon", [elves.ENTRY, PROVIDER], arch=0x73, text=f"v{BUILD}")
    )
    return OpPackageSpec("MyAdd", cpu, htp)


def builder(bench: Bench, playbook: Playbook) -> ReleaseBuilder:
    return ReleaseBuilder(playbook, bench.store, bench.events.append, offline=True)


def test_both_halves_go_to_a_device_and_the_manifest_says_what_they_are(
    bench: Bench, tmp_path: Path
) -> None:
    spec = package(tmp_path)
    plain = builder(bench, bench.playbook)
    table = builder(bench, replace(bench.playbook, op_packages=(spec,)))
    manifest = table.manifest(table.parts(ARM, "v73"))
    before = plain.manifest(plain.parts(ARM, "v73"))
    assert {one.name: one.source for one in manifest.files} == {
        **{one.name: one.source for one in before.files},
        "lib/libMyAdd_CPU.so": spec.cpu,
        "dsp/libMyAdd_HTP.so": spec.htp,
    }
    assert manifest.origin["op_packages"] == [
        {
            "name": "MyAdd",
            "provider": PROVIDER,
            "qairt": BUILD,
            "libraries": {"CPU": "aarch64", "HTP": "hexagon-v73"},
        }
    ]
    assert "op_packages" not in before.origin
    assert manifest.id != before.id
    kinds = table.kinds(ARM, "v73")
    assert spec.htp is not None
    assert (kinds[spec.cpu], kinds[spec.htp]) == ("aarch64", "hexagon-v73")


def test_code_for_the_dsp_stays_off_the_emulator(bench: Bench, tmp_path: Path) -> None:
    table = builder(bench, replace(bench.playbook, op_packages=(package(tmp_path, "x86_64"),)))
    names = {one.name for one in table.manifest(table.parts(X86, "v73")).files}
    assert "lib/libMyAdd_CPU.so" in names
    assert not any(name.startswith("dsp/") for name in names)


def test_a_wrong_pair_is_refused_before_a_byte(bench: Bench, tmp_path: Path) -> None:
    bench.playbook = replace(bench.playbook, op_packages=(package(tmp_path),))
    (done,) = bench.operation().deploy()
    assert isinstance(done.error, PreflightError)
    assert done.plan is not None
    refused = [one for one in done.plan.findings if one.refuses]
    assert [(one.rule, one.have, one.need) for one in refused] == [
        ("op-package-machine", "aarch64", "x86_64")
    ]
    assert not bench.base.exists()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="gcc makes no x86_64 files here")
def test_a_package_of_gcc_arrives_under_its_name_and_loads_there(
    bench: Bench, tmp_path: Path
) -> None:
    source, library = tmp_path / "op.c", tmp_path / "libQnnMyAdd.so"
    source.write_text(SOURCE)
    subprocess.run(
        [needs.compiler(), "-shared", "-fPIC", "-o", str(library), str(source)], check=True
    )
    bench.playbook = replace(bench.playbook, op_packages=(OpPackageSpec("MyAdd", library),))
    (done,) = bench.operation().deploy()
    assert done.error is None, done.error
    release = (bench.base / "current" / bench.playbook.name).resolve()
    placed = release / "lib" / "libMyAdd_CPU.so"
    assert placed.read_bytes() == library.read_bytes()
    assert hasattr(ctypes.CDLL(str(placed)), PROVIDER)
    origin = json.loads(
        (bench.base / "meta" / bench.playbook.name / release.name / "manifest.json").read_text()
    )["origin"]
    assert origin["op_packages"][0]["qairt"] == BUILD
