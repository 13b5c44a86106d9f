"""The rules of Windows: a healthy PC is silent, each fault is found, with both values.

The facts are those of tests/facts/data, written from documentation, not recorded on hardware.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from fleet.bundles.preflight import preflight
from fleet.bundles.rule import Case
from fleet.facts.parse import parse
from fleet.model.bundle import Bundle
from fleet.model.facts import Facts
from fleet.model.runtime import Library, Runtime
from fleet.runtimes.select import select_files

from .conftest import BUILD, MakeBundle, make_runtime

WIN, MIXED = "aarch64-windows-msvc", "arm64x-windows-msvc"
TEXT = (Path(__file__).parents[1] / "facts" / "data" / "windows-x-elite.txt").read_text("utf-8")
SIGNED = "lib/hexagon-v73/unsigned/libqnnhtpv73.cat"


def windows_runtime(target: str = WIN, *, tool: bool = True, without: str = "") -> Runtime:
    names = ["QnnHtp", "QnnSystem", "QnnHtpPrepare", "QnnHtpV73Stub", "QnnHtpNetRunExtensions"]
    if target == WIN:
        names.append("Genie")
    found = [f"lib/{target}/{name}.dll" for name in names]
    found += [f"bin/{target}/genie-t2t-run.exe"] if tool else []
    libraries = [Library(one, 10, "0" * 64, "win-arm64", build_id=BUILD) for one in found]
    skel = "lib/hexagon-v73/unsigned/libQnnHtpV73Skel.so"
    libraries.append(Library(skel, 10, "0" * 64, "hexagon", hexagon_arch="v73", build_id=BUILD))
    libraries.append(Library(SIGNED, 10, "0" * 64, "other"))
    kept = tuple(one for one in libraries if one.path != without)
    return replace(make_runtime(), targets=(target,), libraries=kept)


def windows_facts(*pairs: tuple[str, str]) -> Facts:
    text = TEXT.replace("@BASE@", "C:/Users/lab/fleet").replace("@STORE@", "no")
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return parse(text)


def case(
    bundle: Bundle,
    facts: Facts | None = None,
    runtime: Runtime | None = None,
    *,
    target: str = WIN,
    runner: str = "genie",
) -> Case:
    runtime = runtime or windows_runtime(target)
    facts = facts or windows_facts()
    selection = select_files(runtime, target, facts.soc.hexagon_arch, runner)
    return Case(bundle, runtime, selection, target, facts, 0, 0)


def found(one: Case) -> dict[str, str]:
    findings = preflight(one.bundle, one.runtime, one.selection, one.target, one.facts,
                         bytes_to_send=0, files_to_send=0)  # fmt: skip
    return {item.rule: item.severity for item in findings if item.rule != "soc-model-mismatch"}


@pytest.mark.parametrize("runner", ["genie", "ort"])
def test_a_healthy_pc_is_silent(make_bundle: MakeBundle, runner: str) -> None:
    """Its chip is another one than the bundle's, of the same arch: the extension file says so."""
    one = case(make_bundle(), runner=runner)
    assert {name for name, severity in found(one).items() if severity == "refuse"} == set()
    assert set(found(one)) <= {"ext-soc-model"}


def test_skel_and_catalog_are_chosen_together(make_bundle: MakeBundle) -> None:
    names = {item.name for item in case(make_bundle()).selection.files}
    assert {"dsp/libQnnHtpV73Skel.so", "dsp/libqnnhtpv73.cat", "bin/genie-t2t-run.exe"} <= names


def no_python(text: str) -> Facts:
    lines = [one for one in TEXT.split("\n") if not one.startswith(text)]
    return parse("\n".join(lines).replace("@BASE@", "C:/f"))


FAULTS: list[tuple[str, str, Callable[[Bundle], Case]]] = [
    ("windows-python", "refuse", lambda b: case(b, no_python("python3"))),
    ("windows-python", "refuse", lambda b: case(b, windows_facts((" 3.12.7", " 3.6.1")))),
    (
        "windows-python", "refuse",
        lambda b: case(b, windows_facts(("win-arm64", "win-amd64")), runner="ort"),
    ),
    ("windows-python", "warn", lambda b: case(b, no_python("python3_platform"), runner="ort")),
    ("windows-arm64x", "refuse", lambda b: case(b, target=MIXED, runner="ort")),
    ("skel-catalog", "refuse", lambda b: case(b, runtime=windows_runtime(without=SIGNED))),
    ("windows-npu-driver", "refuse", lambda b: case(b, no_python("npu_"))),
    ("windows-npu-driver", "refuse", lambda b: case(b, windows_facts(("2.35.0.0", "2.22.1.0")))),
    ("windows-npu-driver", "warn", lambda b: case(b, windows_facts(("2.35.0.0", "new")))),
    ("windows-filesystem", "refuse", lambda b: case(b, windows_facts(("NTFS", "exFAT")))),
    ("runtime-incomplete", "refuse", lambda b: case(b, runtime=windows_runtime(tool=False))),
    (
        "target-wrong", "refuse",
        lambda b: case(b, windows_facts(("machine\tarm64", "machine\tamd64"))),
    ),
    ("soc-unknown", "refuse", lambda b: case(b, windows_facts(("8380", ""), ("X1E80100", "X")))),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "severity", "make"), FAULTS)
def test_each_fault_is_found(
    make_bundle: MakeBundle, rule: str, severity: str, make: Callable[[Bundle], Case]
) -> None:
    assert found(make(make_bundle())).get(rule) == severity


def test_the_least_driver_is_enough(make_bundle: MakeBundle) -> None:
    one = case(make_bundle(), windows_facts(("2.35.0.0", "2.22.2.0")))
    assert "windows-npu-driver" not in found(one)


def test_an_emulated_python_is_enough_for_genie(make_bundle: MakeBundle) -> None:
    one = case(make_bundle(), windows_facts(("win-arm64", "win-amd64")))
    assert "windows-python" not in found(one)


def test_an_x64_library_among_them_is_found(make_bundle: MakeBundle) -> None:
    runtime = windows_runtime()
    first, *rest = runtime.libraries
    runtime = replace(runtime, libraries=(structs.replace(first, machine="win-x86_64"), *rest))
    assert found(case(make_bundle(), runtime=runtime))["windows-arm64x"] == "refuse"
