"""Real context binaries in bundle folders made for each test, and a healthy IQ-9075."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from fleet.bundles.inspect import inspect_bundle
from fleet.bundles.rule import Case
from fleet.facts.soc import identify
from fleet.model.bundle import Bundle
from fleet.model.facts import DeviceNode, Disk, Facts, Soc, Tools, User
from fleet.model.runtime import Library, Runtime, RuntimeSource
from fleet.runtimes.select import select_files
from fleet.runtimes.store import RuntimeStore

DATA = Path(__file__).parent / "data"
ARM = "aarch64-oe-linux-gcc11.2"
X86 = "x86_64-linux-clang"
BUILD = "2.51.0.260929181845"
OLD_BUILD = "2.50.40.260831140417"
V73 = "tiny_v73_soc77_qairt2.51.0.bin"
V73_OLD = "tiny_v73_soc77_qairt2.50.40.bin"
V75 = "tiny_v75_soc57_qairt2.51.0.bin"
V81 = "tiny_v81_qairt2.51.0.bin"
UNKNOWN = "tiny_unknown_soc_qairt2.51.0.bin"
GIB = 1024**3

MakeFolder = Callable[..., Path]
MakeBundle = Callable[..., Bundle]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hash cache of a test is its own."""
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def genie_config(shards: tuple[str, ...], **changes: object) -> dict[str, Any]:
    engine = {
        "version": 1,
        "backend": {"type": "QnnHtp", "QnnHtp": {}, "extensions": "htp_ext.json"},
        "model": {"type": "binary", "binary": {"version": 1, "ctx-bins": list(shards)}},
    }
    dialog = {
        "version": 1,
        "type": "basic",
        "context": {"size": 64},
        "tokenizer": {"path": "tokenizer.json"},
        "engine": engine,
    }
    return {"dialog": {**dialog, **changes}}


@pytest.fixture
def make_folder(tmp_path: Path) -> MakeFolder:
    def make(*shards: str, name: str = "tiny-bundle", version: str = "") -> Path:
        """A bundle folder with real context binaries (names of tests/bundles/data)."""
        root = tmp_path / name
        root.mkdir()
        shards = shards or (V73,)
        for shard in shards:
            (root / shard).write_bytes((DATA / shard).read_bytes())
        (root / "genie_config.json").write_text(json.dumps(genie_config(shards)))
        ext = {"devices": [{"soc_model": 77, "dsp_arch": "v73"}]}
        (root / "htp_ext.json").write_text(json.dumps(ext))
        (root / "tokenizer.json").write_text("{}")
        if version:
            (root / "tool-versions.yaml").write_text(f"qairt: {version}\n")
        return root

    return make


@pytest.fixture
def make_bundle(make_folder: MakeFolder) -> MakeBundle:
    return lambda *shards, **kw: inspect_bundle(make_folder(*shards, **kw))


@pytest.fixture(scope="session")
def qnn_system(qairt_store: RuntimeStore) -> Path:
    """The real libQnnSystem.so of QAIRT 2.51.0 for x86_64."""
    runtime = qairt_store.find("2.51.0", X86)
    assert runtime is not None
    return runtime.root / "lib" / X86 / "libQnnSystem.so"


def make_runtime(
    build: str = BUILD, target: str = ARM, archs: tuple[str, ...] = ("v73",)
) -> Runtime:
    """What the store knows of a runtime, without files behind it."""
    version = build.rsplit(".", 1)[0]
    machine = "x86_64" if target == X86 else "aarch64"
    plain = {"libQnnHtp.so": build, "libQnnHtpPrepare.so": build, "libQnnSystem.so": None}
    libraries = [
        Library(f"lib/{target}/{name}", 10, "0" * 64, machine, build_id=text)
        for name, text in plain.items()
    ]
    libraries += [
        Library(f"lib/{target}/{name}", 10, "0" * 64, machine, aisw_version=version)
        for name in ("libGenie.so", "libQnnHtpNetRunExtensions.so")
    ]
    for arch in archs:
        digits = arch.removeprefix("v")
        stub = f"lib/{target}/libQnnHtpV{digits}Stub.so"
        skel = f"lib/hexagon-{arch}/unsigned/libQnnHtpV{digits}Skel.so"
        libraries += [
            Library(stub, 10, "0" * 64, machine, build_id=build),
            Library(skel, 10, "0" * 64, "hexagon", hexagon_arch=arch, build_id=build),
        ]
    return Runtime(
        id=f"qairt-{build}",
        version=version,
        build_id=build,
        root=Path("/nowhere") / build,
        targets=(target,),
        hexagon_archs=archs,
        source=RuntimeSource("wheel", "test"),
        libraries=tuple(libraries),
    )


def make_facts(kernel_soc_id: int | None = 676, **changes: Any) -> Facts:
    """A healthy IQ-9075 EVK with Ubuntu 24.04."""
    healthy = Facts(
        os_id="ubuntu",
        os_version="24.04",
        machine="aarch64",
        libc="glibc",
        libc_version="2.39",
        memory_bytes=36 * GIB,
        memory_available_bytes=30 * GIB,
        soc=identify(Soc(kernel_soc_id=kernel_soc_id)),
        user=User("ubuntu", 1000, "/home/ubuntu", ("ubuntu", "fastrpc"), ("ubuntu", "fastrpc")),
        nodes=(DeviceNode("/dev/fastrpc-cdsp", True, "660", "root", "fastrpc", ""),),
        libcdsprpc=("/usr/lib/libcdsprpc.so", "/usr/lib/libcdsprpc.so.1"),
        libcdsprpc_unversioned=True,
        base_dir="/home/ubuntu/fleet",
        disk=Disk("/home/ubuntu/fleet", "/", 50 * GIB, 1_000_000, True),
        tools=Tools(python3="/usr/bin/python3", python3_version="3.12.3", python3_ctypes=True),
    )
    return structs.replace(healthy, **changes)


def make_case(
    bundle: Bundle,
    *,
    runtime: Runtime | None = None,
    facts: Facts | None = None,
    target: str = ARM,
    **changes: Any,
) -> Case:
    facts = facts or make_facts()
    arch = facts.soc.hexagon_arch
    runtime = runtime or make_runtime(target=target, archs=(arch or "v73",))
    selection = select_files(runtime, target, arch)
    case = Case(bundle, runtime, selection, target, facts, 200_000_000, 20)
    return replace(case, **changes)
