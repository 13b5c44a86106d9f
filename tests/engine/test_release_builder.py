"""What real devices would get: aarch64 targets from the real aarch64 files of the runtime."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from fleet.bundles.preflight import preflight
from fleet.engine.deploy.release_builder import ReleaseBuilder
from fleet.model.errors import InputError, RuntimeStoreError
from fleet.model.events import Event
from fleet.model.facts import DeviceNode, Disk, Facts, Soc, Tools
from fleet.model.inventory import Host
from fleet.runtimes.store import RuntimeStore

from .conftest import Bench

pytestmark = pytest.mark.qairt
EVK = Facts(
    os_id="ubuntu",
    os_version="24.04",
    machine="aarch64",
    libc="glibc",
    libc_version="2.39",
    libatomic=True,
    soc=Soc(676, chip="QCS9075", soc_model=77, hexagon_arch="v73", vtcm_mb=8, source="soc_id"),
    nodes=(DeviceNode("/dev/fastrpc-cdsp", True, "664", "fastrpc", "fastrpc", ""),),
    libcdsprpc=("/usr/lib/libcdsprpc.so",),
    libcdsprpc_unversioned=True,
    base_dir="/home/ubuntu/fleet",
    disk=Disk("/home/ubuntu/fleet", "/", 1 << 40, 1 << 20, True),
    tools=Tools(
        "/usr/bin/python3",
        "3.12.3",
        python3_ctypes=True,
        sha256=("sha256sum",),
        timeout=True,
        dd_fullblock=True,
        find_printf=True,
    ),
)
HOST = Host("evk")


@pytest.fixture
def builder(bench: Bench) -> ReleaseBuilder:
    events: list[Event] = []
    return ReleaseBuilder(bench.playbook, bench.store, events.append, offline=True)


def test_an_iq9075_gets_stub_and_skel_of_its_arch(builder: ReleaseBuilder) -> None:
    target = builder.target_for(HOST, EVK)
    assert target == "aarch64-oe-linux-gcc11.2"
    parts = builder.parts(target, EVK.soc.hexagon_arch)
    names = {item.name for item in builder.manifest(parts).files}
    assert {"lib/libGenie.so", "lib/libQnnHtp.so", "lib/libQnnSystem.so"} <= names
    assert {"lib/libQnnHtpV73Stub.so", "dsp/libQnnHtpV73Skel.so"} <= names
    assert not any("V75" in name or "V68" in name for name in names)
    assert {"bundle/genie_config.json", "bundle/tokenizer.json", "run/fleet_genie.py"} <= names
    findings = preflight(builder.bundle, parts.runtime, parts.selection, target, EVK)
    assert [f for f in findings if f.refuses] == []


def test_the_environment_holds_only_folders_of_fleet(builder: ReleaseBuilder) -> None:
    parts = builder.parts("aarch64-oe-linux-gcc11.2", "v73")
    manifest = builder.manifest(parts)
    assert manifest.environment("/b/releases/x/id") == {
        "LD_LIBRARY_PATH": "/b/releases/x/id/lib:/b/shim",
        "ADSP_LIBRARY_PATH": "/b/releases/x/id/dsp",
    }
    assert ":" not in manifest.env["ADSP_LIBRARY_PATH"]
    assert manifest.unset == ("DSP_LIBRARY_PATH",)


def test_the_release_id_is_the_same_for_equal_boards_and_differs_by_target(
    builder: ReleaseBuilder,
) -> None:
    arm = builder.manifest(builder.parts("aarch64-oe-linux-gcc11.2", "v73"))
    again = builder.manifest(builder.parts("aarch64-oe-linux-gcc11.2", "v73"))
    emulator = builder.manifest(builder.parts("x86_64-linux-clang", "v73"))
    assert arm.id == again.id
    assert arm.id != emulator.id


def test_a_v75_board_is_refused_with_both_archs(builder: ReleaseBuilder) -> None:
    board = structs.replace(
        EVK, soc=structs.replace(EVK.soc, chip="QCS8275", soc_model=82, hexagon_arch="v75")
    )
    parts = builder.parts("aarch64-oe-linux-gcc11.2", "v75")
    findings = preflight(builder.bundle, parts.runtime, parts.selection, parts.target, board)
    (finding,) = [f for f in findings if f.rule == "arch-mismatch"]
    assert finding.refuses
    assert ("v73" in finding.have, "v75" in finding.need) == (True, True)


def test_inventory_and_playbook_may_name_the_target(builder: ReleaseBuilder, bench: Bench) -> None:
    assert builder.target_for(replace(HOST, target="aarch64-android"), EVK) == "aarch64-android"
    with pytest.raises(InputError, match="no QAIRT target"):
        builder.target_for(HOST, structs.replace(EVK, machine="riscv64"))


def test_a_version_that_cannot_be_had_names_the_command(bench: Bench, tmp_path: Path) -> None:
    runtime = replace(bench.playbook.runtime, version="2.31.0")
    playbook = replace(bench.playbook, runtime=runtime)
    bench_ = ReleaseBuilder(
        playbook, RuntimeStore(tmp_path / "empty"), lambda _: None, offline=True
    )
    with pytest.raises(RuntimeStoreError) as caught:
        bench_.parts("aarch64-oe-linux-gcc11.2", "v73")
    assert "fleet runtime add" in caught.value.hint


def test_offline_never_fetches(bench: Bench, tmp_path: Path) -> None:
    bench_ = ReleaseBuilder(
        bench.playbook, RuntimeStore(tmp_path / "empty"), lambda _: None, offline=True
    )
    with pytest.raises(RuntimeStoreError) as caught:
        bench_.parts("x86_64-linux-clang", "v73")
    assert "fleet runtime fetch" in caught.value.hint
