"""Every pre-flight rule: a healthy case is silent, each fault is found, with both values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from fleet.bundles.preflight import RULES, preflight
from fleet.bundles.rule import Case
from fleet.facts.soc import identify
from fleet.model.bundle import Engine, MissingFile, WrongHash
from fleet.model.facts import Android, DeviceNode, Facts, Soc, Tools, User
from fleet.model.files import FileRef
from fleet.model.finding import Finding
from fleet.model.op_package import OpLibrary, OpPackage
from fleet.model.plain import to_plain

from . import test_rules_windows
from .conftest import BUILD, OLD_BUILD, X86, MakeBundle, make_case, make_runtime

NODE = "/dev/fastrpc-cdsp"


def run(case: Case) -> tuple[Finding, ...]:
    return preflight(
        case.bundle,
        case.runtime,
        case.selection,
        case.target,
        case.facts,
        bytes_to_send=case.bytes_to_send,
        files_to_send=case.files_to_send,
    )


def found(case: Case) -> dict[str, str]:
    return {item.rule: item.severity for item in run(case)}


@pytest.fixture
def healthy(make_bundle: MakeBundle) -> Case:
    return make_case(make_bundle())


def test_a_chip_of_the_same_arch_in_a_name_is_silent(healthy: Case) -> None:
    assert "chip-in-name" not in found(sent(healthy, "llm_SM8550.pte"))
    assert "chip-in-name" not in found(sent(healthy, "qualcomm-sm8750.json"))


def test_a_healthy_case_is_silent(healthy: Case) -> None:
    assert run(healthy) == ()
    assert run(ops(healthy, "none")) == ()


def sent(case: Case, name: str) -> Case:
    """The same case with one more file in the bundle."""
    return bundle(case, files=(*case.bundle.files, FileRef(Path("/b", name), name, 1, "0" * 64)))


def shard(case: Case, **changes: Any) -> Case:
    """The same case with another first context binary."""
    first, *rest = case.bundle.contexts
    contexts = (replace(first, **changes), *rest)
    return bundle(case, contexts=contexts)


def bundle(case: Case, **changes: Any) -> Case:
    return replace(case, bundle=replace(case.bundle, **changes))


def facts(case: Case, **changes: Any) -> Case:
    return replace(case, facts=structs.replace(case.facts, **changes))


def android(case: Case) -> Case:
    return facts(case, android=Android())


def soc(case: Case, kernel: int | None = None, chip: str | None = None, **changes: Any) -> Case:
    new = identify(Soc(kernel_soc_id=kernel), chip)
    return make_case(
        case.bundle, facts=structs.replace(case.facts, soc=structs.replace(new, **changes))
    )


def target(case: Case, name: str) -> Case:
    return make_case(case.bundle, facts=case.facts, target=name)


def disk(case: Case, **changes: Any) -> Case:
    return facts(case, disk=structs.replace(case.facts.disk, **changes))


def node(case: Case, *nodes: DeviceNode, **user: Any) -> Case:
    return facts(case, nodes=nodes, user=structs.replace(case.facts.user, **user))


def ext(case: Case, **device: object) -> Case:
    return bundle(case, extensions={"devices": [device]})


def emulator(case: Case, **changes: Any) -> Case:
    """An x86_64 board that claims to be an IQ-9075."""
    seen = structs.replace(
        case.facts, machine="x86_64", nodes=(), libcdsprpc_unversioned=False, **changes
    )
    return make_case(case.bundle, facts=seen, target=X86)


def _mixed(case: Case) -> Case:
    """The stub of 2.50.40 among files of 2.51.0."""
    libraries = tuple(
        structs.replace(item, build_id=OLD_BUILD) if "Stub" in item.name else item
        for item in case.runtime.libraries
    )
    return replace(case, runtime=replace(case.runtime, libraries=libraries))


def ops(case: Case, role: str, **changes: Any) -> Case:
    """With an op package whose library of one role is changed."""
    libraries = tuple(
        OpLibrary(
            name,
            FileRef(Path("/ops") / name / "libX.so", f"libX_{name}.so", 10, "0" * 64),
            machine,
            arch,
            builds=(BUILD,),
            providers=("XInterfaceProvider",),
            entry="op_pkg_init",
        )
        for name, machine, arch in (("CPU", "aarch64", None), ("HTP", "hexagon", "v73"))
    )
    changed = tuple(replace(one, **changes) if one.role == role else one for one in libraries)
    return bundle(case, op_packages=(OpPackage("X", changed, "XInterfaceProvider"),))


@dataclass(frozen=True)
class Row:
    """`change` makes the fault; `words` must stand in message, have, need or cure."""

    rule: str
    severity: str
    change: Callable[[Case], Case]
    words: tuple[str, ...] = ()
    also: tuple[str, ...] = ()


def opened(error: str | None, group: str = "fastrpc", *, exists: bool = True) -> DeviceNode:
    return DeviceNode(NODE, exists, "660", "root", group, error)


EACCES = opened("EACCES")
ROWS = [
    Row(
        "files-missing",
        "refuse",
        lambda c: bundle(c, missing=(MissingFile("tokenizer.json", "genie_config.json"),)),
        ("tokenizer.json", "genie_config.json"),
    ),
    Row(
        "files-missing",
        "refuse",
        lambda c: bundle(c, absent=("dialog.engine.model.binary.ctx-bins",)),
        ("genie_config.json has no dialog.engine.model.binary.ctx-bins", "list the .bin files"),
    ),
    Row(
        "files-missing",
        "refuse",
        lambda c: bundle(c, absent=("dialog.tokenizer",)),
        ("has no dialog.tokenizer", "add dialog.tokenizer"),
    ),
    Row(
        "files-missing",
        "refuse",
        lambda c: bundle(c, missing=(MissingFile("<models_dir>/a.bin", "genie_config.json"),)),
        ("the placeholder <models_dir>/a.bin", "write the file name in place of"),
    ),
    Row("context-damaged", "refuse", lambda c: shard(c, problem="it is empty"), ("it is empty",)),
    Row(
        "hash-mismatch",
        "refuse",
        lambda c: bundle(c, wrong_hashes=(WrongHash("a.bin", "1" * 64, "2" * 64),)),
        ("a.bin", "1111", "2222", "sha256sum"),
    ),
    Row(
        "shards-mixed",
        "refuse",
        lambda c: bundle(
            c,
            contexts=(
                *c.bundle.contexts,
                replace(c.bundle.contexts[0], name="b.bin", build_id=OLD_BUILD),
            ),
        ),
        ("b.bin", OLD_BUILD, "2.51.0.260929181845"),
    ),
    Row(
        "shards-mixed",
        "refuse",
        lambda c: bundle(
            c,
            contexts=(
                *c.bundle.contexts,
                replace(c.bundle.contexts[0], name="b.bin", hexagon_arch="v75"),
            ),
        ),
        ("v73", "v75"),
        also=("arch-mismatch",),
    ),
    Row(
        "binary-newer-than-runtime",
        "refuse",
        lambda c: make_case(c.bundle, runtime=make_runtime(OLD_BUILD)),
        ("5000", "2.51.0", "2.50.40", "fleet runtime fetch 2.51.0"),
    ),
    Row(
        "binary-newer-than-runtime",
        "refuse",
        lambda c: shard(c, backend_api="5.52.0", build_id=None),
        ("5.52.0", "5.51.0"),
    ),
    Row(
        "binary-newer-than-runtime",
        "warn",
        lambda c: shard(c, backend_api=None, build_id=None),
        ("unknown", "could not check"),
    ),
    Row(
        "runtime-differs",
        "warn",
        lambda c: shard(c, build_id="2.48.40.260702151143"),
        ("2.48.40.260702151143", "newer"),
    ),
    Row(
        "runtime-differs",
        "warn",
        lambda c: shard(c, build_id="2.51.40.261001000000"),
        ("an older",),
    ),
    Row("runtime-mixed", "refuse", _mixed, ("libQnnHtpV73Stub.so", OLD_BUILD, "1008")),
    Row(
        "runtime-incomplete",
        "refuse",
        lambda c: make_case(c.bundle, runtime=make_runtime(archs=())),
        ("libQnnHtpV73Skel.so",),
    ),
    Row("backend-cpu", "warn", lambda c: bundle(c, engines=(Engine("", "QnnGpu"),)), ("NPU",)),
    Row("backend-cpu", "warn", lambda c: shard(c, backend_id=4), ("backend id 4",)),
    Row("soc-unknown", "refuse", lambda c: soc(c, 99999), ("99999", "soc: QCS9075")),
    Row("soc-unknown", "refuse", lambda c: soc(c, None), ("no soc_id",)),
    Row("soc-unknown", "refuse", lambda c: soc(c, 676, hexagon_arch=None), ("Hexagon arch",)),
    Row(
        "soc-no-htp",
        "refuse",
        lambda c: soc(c, chip="SM4450"),
        ("SM4450 has no HTP", "v68", "another board"),
        also=("soc-model-mismatch", "ext-soc-model"),
    ),
    Row(
        "soc-no-htp",
        "refuse",
        lambda c: soc(c, 400),
        ("SM7250 has no HTP: Hexagon v66",),
        also=("arch-mismatch", "soc-model-mismatch", "ext-soc-model"),
    ),
    Row(
        "soc-conflict",
        "warn",
        lambda c: soc(c, 676, conflict="soc_id says A, device tree says B"),
        ("device tree says B",),
    ),
    Row(
        "target-wrong",
        "refuse",
        lambda c: target(c, "aarch64-ubuntu-gcc9.4"),
        ("v68", "v73", "gcc11.2"),
        also=("runtime-incomplete",),
    ),
    Row(
        "target-wrong",
        "refuse",
        lambda c: facts(c, machine="x86_64"),
        ("x86_64", "aarch64", "cannot open shared object file"),
    ),
    Row(
        "target-wrong",
        "refuse",
        lambda c: facts(c, libc="bionic", os_id="android"),
        ("android", "linux"),
        also=("glibc-too-old",),
    ),
    Row("target-wrong", "warn", lambda c: facts(c, machine=None), ("unknown",)),
    Row(
        "soc-refused",
        "refuse",
        lambda c: soc(c, chip="SM8550"),
        ("Unsupported SoC model", "43"),
        also=("soc-model-mismatch", "ext-soc-model"),
    ),
    Row(
        "soc-refused",
        "refuse",
        lambda c: target(soc(c, chip="QCS8550"), "aarch64-oe-linux-gcc9.3"),
        ("66",),
        also=("target-wrong", "runtime-incomplete", "soc-model-mismatch", "ext-soc-model"),
    ),
    Row(
        "soc-too-new",
        "refuse",
        lambda c: replace(
            soc(c, chip="CQ8750S", hexagon_arch="v73"),
            runtime=make_runtime("2.42.0.251225000000"),
        ),
        ("2.42.0", "2.43", "No Snapdragon SOC detected"),
        also=("binary-newer-than-runtime", "soc-model-mismatch", "ext-soc-model"),
    ),
    Row("arch-mismatch", "refuse", lambda c: shard(c, hexagon_arch="v81"), ("v81", "v73")),
    Row("arch-mismatch", "refuse", lambda c: shard(c, hexagon_arch="v68"), ("v68",)),
    Row("arch-mismatch", "warn", lambda c: shard(c, hexagon_arch=None), ("unknown",)),
    Row(
        "arch-mismatch",
        "refuse",
        lambda c: emulator(shard(c, hexagon_arch="v75")),
        ("v75", "QCS9075"),
    ),
    Row(
        "vtcm-too-large",
        "refuse",
        lambda c: shard(c, vtcm_mb=16, graph_vtcm_mb=16),
        ("16 MB", "8 MB"),
    ),
    Row("vtcm-too-large", "warn", lambda c: shard(c, vtcm_mb=16, graph_vtcm_mb=4), ("16 MB",)),
    Row("vtcm-too-large", "warn", lambda c: shard(c, vtcm_mb=16), ("16 MB",)),
    Row(
        "soc-model-mismatch",
        "warn",
        lambda c: shard(c, soc_model=43, soc_type="SM8550"),
        ("SM8550", "43", "77"),
    ),
    Row(
        "soc-model-mismatch",
        "warn",
        lambda c: shard(c, soc_type="SA8775P"),
        ("SA8775P", "52", "77"),
    ),
    Row("chip-in-name", "warn", lambda c: sent(c, "llm_SM8750.pte"), ("SM8750 (v79)", "v73")),
    Row("ext-soc-model", "refuse", lambda c: ext(c, soc_model=676), ("676", "77", "kernel")),
    Row("ext-soc-model", "refuse", lambda c: ext(c, soc_id=0), ("14001",)),
    Row("ext-soc-model", "refuse", lambda c: ext(c, soc_model="77"), ("14001",)),
    Row("ext-soc-model", "warn", lambda c: ext(c, soc_model=7777), ("7777", "14001")),
    Row("ext-soc-model", "warn", lambda c: ext(c, soc_model=57), ("SM8650", "ignores")),
    Row("ext-soc-model", "warn", lambda c: ext(c, htp_arch="v75"), ("v75", "v73")),
    Row("glibc-too-old", "refuse", lambda c: facts(c, libc_version="2.31"), ("2.31", "2.34")),
    Row("glibc-too-old", "refuse", lambda c: facts(c, libc="musl"), ("musl", "glibc 2.34")),
    Row("glibc-too-old", "warn", lambda c: facts(c, libc_version=None), ("unknown",)),
    Row(
        "libstdcpp-missing", "refuse", lambda c: facts(c, libstdcpp=False), ("apt install libstdc",)
    ),
    Row("libatomic-missing", "refuse", lambda c: facts(c, libatomic=False), ("libatomic1",)),
    Row("python3-missing", "refuse", lambda c: facts(c, tools=Tools()), ("apt install python3",)),
    Row(
        "python3-missing",
        "refuse",
        lambda c: facts(c, tools=Tools(python3="/usr/bin/python3", python3_ctypes=False)),
        ("ctypes",),
    ),
    Row(
        "disk-full",
        "refuse",
        lambda c: disk(c, available_bytes=150_000_000),
        ("143 MiB", "255 MiB", "base_dir"),
    ),
    Row("disk-full", "refuse", lambda c: disk(c, inodes=10), ("10 inodes",)),
    Row("disk-full", "warn", lambda c: disk(c, available_bytes=None), ("unknown",)),
    Row(
        "disk-full",
        "warn",
        lambda c: replace(disk(c, available_bytes=1000), bytes_to_send=None),
        ("0 MiB",),
    ),
    Row("base-not-writable", "refuse", lambda c: disk(c, writable=False), ("install -d",)),
    Row("memory-low", "warn", lambda c: facts(c, memory_available_bytes=1000), ("0 MiB",)),
    Row("fastrpc-node", "refuse", lambda c: node(c, EACCES), ("EACCES", "14001", "660")),
    Row(
        "fastrpc-node",
        "refuse",
        lambda c: node(c, EACCES, groups_live=(), groups_db=()),
        ("usermod -aG fastrpc ubuntu",),
    ),
    Row(
        "fastrpc-node",
        "refuse",
        lambda c: node(c, EACCES, groups_live=()),
        ("log in again",),
    ),
    Row("fastrpc-node", "refuse", lambda c: node(c, opened("EACCES", "root")), ("udev",)),
    Row("fastrpc-node", "warn", lambda c: node(emulator(c), EACCES), ("EACCES", "real board")),
    Row("fastrpc-node", "refuse", lambda c: node(c, opened("ENXIO")), ("ENXIO", "journalctl")),
    Row(
        "fastrpc-node",
        "refuse",
        lambda c: node(c, opened("ENOENT", exists=False)),
        ("ENOENT", "remoteproc"),
    ),
    Row("fastrpc-node", "warn", node, ("could not check",)),
    Row("fastrpc-node", "warn", lambda c: android(node(c, opened("EACCES", "root")))),
    Row(
        "fastrpc-node",
        "warn",
        lambda c: android(node(c, opened("ENOENT", exists=False))),
        ("SELinux", "session can tell"),
    ),
    Row("fastrpc-node", "warn", lambda c: node(c, opened(None)), ("could not check",)),
    Row(
        "libcdsprpc-missing",
        "refuse",
        lambda c: facts(c, libcdsprpc=("/usr/lib/libcdsprpc.so.1",), libcdsprpc_unversioned=False),
        ("ln -s '/usr/lib/libcdsprpc.so.1' '/usr/lib/libcdsprpc.so'",),
    ),
    Row(
        "libcdsprpc-missing",
        "refuse",
        lambda c: facts(c, libcdsprpc=(), libcdsprpc_unversioned=False),
        ("fastrpc: auto",),
    ),
    Row(
        "libcdsprpc-missing",
        "refuse",
        lambda c: android(facts(c, libcdsprpc=(), libcdsprpc_unversioned=False)),
        ("stock firmware",),
    ),
    Row("libcdsprpc-missing", "warn", lambda c: facts(c, libcdsprpc_unversioned=None)),
    Row(
        "dsp-shell-missing",
        "warn",
        lambda c: facts(c, dsp_shells=()),
        ("fastrpc_shell_unsigned_3", "hexagon-dsp-binaries", "/usr/share/hexagon-dsp"),
    ),
    Row(
        "op-package-machine",
        "refuse",
        lambda c: ops(c, "CPU", machine="x86_64"),
        ("/ops/CPU/libX.so", "x86_64", "aarch64"),
    ),
    Row(
        "op-package-arch",
        "refuse",
        lambda c: ops(c, "HTP", hexagon_arch="v75"),
        ("/ops/HTP/libX.so", "v75", "v73", "make htp_v73"),
    ),
    Row(
        "op-package-version",
        "refuse",
        lambda c: ops(c, "HTP", builds=(OLD_BUILD,)),
        ("/ops/HTP/libX.so", OLD_BUILD, BUILD),
    ),
    Row("op-package-entry", "refuse", lambda c: ops(c, "CPU", entry=""), ("op_pkg_init", "4005")),
    Row("op-package-entry", "warn", lambda c: ops(c, "HTP", entry=""), ("op_pkg_init",)),
    Row(
        "op-package-needs",
        "refuse",
        lambda c: ops(c, "CPU", needed=("libc.so.6", "libQnnHtp.so", "libQnnDsp.so")),
        ("libQnnDsp.so", "fleet runtime add"),
    ),
    Row("op-package-needs", "warn", lambda c: ops(c, "CPU", needed=("libc++_shared.so",))),
    Row(
        "op-package-provider",
        "refuse",
        lambda c: ops(c, "CPU", problem="XInterfaceProvider has hidden visibility in the library"),
        ("/ops/CPU/libX.so", "hidden", "provider: XInterfaceProvider"),
    ),
    Row(
        "onnx-ir-too-new",
        "refuse",
        lambda c: bundle(c, config={"models": {"m.onnx": {"ir_version": 14}}}),
        ("m.onnx", "IR version 14", "IR version 13"),
    ),
    Row(
        "litert-qairt",
        "warn",
        lambda c: make_case(
            replace(c.bundle, kind="litert", contexts=(), backend=None),
            runtime=make_runtime("2.49.40.260810104044"),
        ),
        ("LiteRT 2.3.0", "QAIRT 2.50", "2.49.40"),
    ),
    Row(
        "dsp-library-path",
        "warn",
        lambda c: facts(c, dsp_library_path="/usr/lib/dsp"),
        ("/usr/lib/dsp",),
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.rule}-{row.severity}" for row in ROWS])
def test_a_fault_is_found_and_only_it(row: Row, healthy: Case) -> None:
    findings = run(row.change(healthy))
    mine = [item for item in findings if item.rule == row.rule]
    assert mine, findings
    assert mine[0].severity == row.severity
    for item in mine:
        assert item.have
        assert item.need
        assert item.cure
        assert item.source
    told = " | ".join(f"{i.message} {i.have} {i.need} {i.cure}" for i in mine)
    for word in row.words:
        assert word in told
    assert {item.rule for item in findings} - {row.rule} <= set(row.also)


def test_every_rule_has_a_case() -> None:
    there = {rule for rule, *_ in test_rules_windows.FAULTS}
    assert {row.rule for row in ROWS} | there == {rule.id for rule in RULES}


def test_rules_are_named_once_and_say_what_they_ask() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert all(rule.text.endswith(".") and rule.source for rule in RULES)


def test_refusals_come_first(healthy: Case) -> None:
    case = facts(healthy, dsp_library_path="/x", libc_version="2.31", memory_available_bytes=1)
    severities = [item.severity for item in run(case)]
    assert severities == sorted(severities)
    assert set(severities) == {"refuse", "warn"}


def test_unknown_facts_refuse_nothing_but_the_chip(make_bundle: MakeBundle) -> None:
    tools = Tools(python3="/usr/bin/python3")
    case = make_case(make_bundle(), facts=Facts(tools=tools, libcdsprpc_unversioned=None))
    assert [item.rule for item in run(case) if item.refuses] == ["soc-unknown"]


def test_an_unknown_chip_with_an_override_is_fine(healthy: Case) -> None:
    assert found(soc(healthy, 99999, chip="QCS9075")) == {}


def test_the_emulator_has_no_fastrpc(healthy: Case) -> None:
    case = emulator(healthy, dsp_library_path="/x")
    assert found(case) == {}


def test_a_tool_of_the_sdk_needs_no_python(healthy: Case) -> None:
    case = facts(healthy, tools=Tools())
    selection = replace(case.selection, has_tool=True)
    assert found(replace(case, selection=selection)) == {}


def test_candidates_of_soc_model_are_accepted(healthy: Case) -> None:
    """QCS6490 is 93 in new SDKs and 35 in old ones."""
    case = soc(shard(healthy, hexagon_arch="v68", soc_model=35), chip="QCS6490")
    assert "soc-model-mismatch" not in found(case)


def test_btrfs_has_no_inode_count(healthy: Case) -> None:
    assert found(disk(healthy, inodes=0)) == {}
    assert found(disk(healthy, inodes=0, writable=None)) == {"disk-full": "refuse"}


def test_one_node_that_opens_is_enough(healthy: Case) -> None:
    secure = DeviceNode(f"{NODE}-secure", True, "600", "root", "root", "EACCES")
    assert found(node(healthy, secure, opened(""))) == {}


def test_extensions_that_make_no_sense_are_left_to_qnn(healthy: Case) -> None:
    values: tuple[dict[str, Any], ...] = (
        {},
        {"devices": 3},
        {"devices": ["x"]},
        {"devices": [{}]},
    )
    for value in values:
        assert found(bundle(healthy, extensions=value)) == {}


def test_a_user_without_a_name(healthy: Case) -> None:
    case = node(facts(healthy, user=User()), EACCES)
    assert found(case) == {"fastrpc-node": "refuse"}


def test_findings_are_data(healthy: Case) -> None:
    (finding,) = run(facts(healthy, libc_version="2.31"))
    assert to_plain(finding)["rule"] == "glibc-too-old"
    assert to_plain(finding)["have"] == "glibc 2.31"


_LACKS: dict[str, dict[str, Any]] = {
    "libatomic-missing": {"libatomic": False},
    "libstdcpp-missing": {"libstdcpp": False},
    "python3-missing": {"tools": Tools()},
    "libcdsprpc-missing": {"libcdsprpc": (), "libcdsprpc_unversioned": False},
}


@pytest.mark.parametrize("rule", _LACKS)
def test_a_cure_fits_the_kind_of_the_device(rule: str, healthy: Case) -> None:
    """What is typed on a board, on this computer for a board that shares it, never on a phone."""
    lacks = _LACKS[rule]

    def cure(case: Case) -> str:
        (finding,) = [item for item in run(case) if item.rule == rule]
        return str(finding.cure)

    board, here = cure(facts(healthy, **lacks)), cure(facts(healthy, local=True, **lacks))
    phone = cure(android(facts(healthy, **lacks)))
    assert "apt" not in phone
    if "apt install" in board:
        assert "on the device" in board
        assert "on the device" not in here
        assert "on this computer" in here
