"""What fleet refuses, QNN refuses too: each op package is shown to both.

The real libQnnHtp of x86_64 (the HTP emulator) registers packages that gcc makes here.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.bundles.op_packages import net_run_option, with_op_packages
from fleet.bundles.preflight import preflight
from fleet.bundles.rule import Case
from fleet.model.op_package import OpPackageSpec
from fleet.runtimes.store import RuntimeStore
from tests import needs

from .conftest import X86, MakeBundle, make_case

pytestmark = [
    pytest.mark.qairt,
    pytest.mark.skipif(
        (sys.platform, platform.machine()) != ("linux", "x86_64"),
        reason="the HTP emulator runs on x86_64 Linux only",
    ),
]
HERE = Path(__file__).parent
PROVIDER = "FleetTestInterfaceProvider"
# QNN API and HTP API of 2.51.0 and 2.50.40, as their libQnnHtp answers.
GOOD = {"CORE_MINOR": "40", "HTP_MINOR": "51", "BUILD": '"v2.51.0.260929181845_1"'}
OLD = {"CORE_MINOR": "39", "HTP_MINOR": "50", "BUILD": '"v2.50.40.260831140417_1"'}
NEW = {"CORE_MINOR": "40", "HTP_MINOR": "99", "BUILD": '"v2.99.0.990101000000_1"'}
OLDER = "may have incompatible QNN API and/or QNN HTP API"


@pytest.fixture(scope="module")
def libraries(qairt_store: RuntimeStore) -> Path:
    runtime = qairt_store.find("2.51.0", X86)
    assert runtime is not None
    return runtime.root / "lib" / X86


def build(folder: Path, *options: str, **macros: str) -> Path:
    path = folder / "libQnnFleetTest.so"
    given = [f"-D{name}={value}" if value else f"-D{name}" for name, value in macros.items()]
    source = str(HERE / "op_package.c")
    subprocess.run(
        [needs.compiler(), "-shared", "-fPIC", *given, "-o", str(path), source, *options],
        check=True, cwd=folder,
    )  # fmt: skip
    return path


def ask_qnn(libraries: Path, package: Path, provider: str, *target: str) -> tuple[int | None, str]:
    """QNN's answer and its log; None for a crash."""
    done = subprocess.run(
        [sys.executable, str(HERE / "qnn_register.py"), str(libraries), str(package), provider,
         *target],
        env={"LD_LIBRARY_PATH": str(libraries), "PATH": os.defpath},
        capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    text = done.stdout.decode("utf-8", "replace")
    answer = re.search(r"^answer (\d+)$", text, re.MULTILINE)
    assert answer or done.returncode < 0, done.stderr
    return (int(answer[1]) if answer else None), text


def ask_fleet(case: Case, package: Path, provider: str | None) -> set[str]:
    spec = OpPackageSpec("FleetTest", package, provider=provider)
    bundle = with_op_packages(case.bundle, [spec])
    found = preflight(bundle, case.runtime, case.selection, case.target, case.facts)
    return {one.rule for one in found if one.refuses and one.rule.startswith("op-package")}


@pytest.fixture
def emulator(make_bundle: MakeBundle) -> Case:
    return make_case(make_bundle(), target=X86)


@pytest.fixture
def asked(emulator: Case, libraries: Path, tmp_path: Path) -> tuple[Case, Path, Path]:
    return emulator, libraries, tmp_path


def test_a_good_package_is_good_to_both(emulator: Case, libraries: Path, tmp_path: Path) -> None:
    package = build(tmp_path, **GOOD)
    assert ask_fleet(emulator, package, None) == set()
    answer, log = ask_qnn(libraries, package, PROVIDER)
    assert answer == 0
    assert OLDER not in log


@pytest.mark.parametrize(
    ("macros", "fleet", "qnn"),
    [
        (GOOD | {"WITHOUT_ENTRY": ""}, "op-package-entry", 4005),
        (GOOD | {"HIDDEN": ""}, "op-package-provider", 4006),
        (GOOD | {"DATA": ""}, "op-package-provider", None),
        (NEW, "op-package-version", 4008),
    ],
    ids=["no entry", "hidden provider", "data as provider: a crash", "newer"],
)
def test_what_fleet_refuses_qnn_refuses(
    asked: tuple[Case, Path, Path], macros: dict[str, str], fleet: str, qnn: int | None
) -> None:
    emulator, libraries, folder = asked
    package = build(folder, **macros)
    assert ask_fleet(emulator, package, PROVIDER) == {fleet}
    assert ask_qnn(libraries, package, PROVIDER)[0] == qnn


def test_of_an_older_package_qnn_only_warns(
    emulator: Case, libraries: Path, tmp_path: Path
) -> None:
    """Its pages say that it must be built again; nothing else would stop it."""
    package = build(tmp_path, **OLD)
    assert ask_fleet(emulator, package, None) == {"op-package-version"}
    answer, log = ask_qnn(libraries, package, PROVIDER)
    assert answer == 0
    assert OLDER in log


def test_a_wrong_name_is_refused_by_both(emulator: Case, libraries: Path, tmp_path: Path) -> None:
    package = build(tmp_path, **GOOD)
    assert ask_fleet(emulator, package, "OtherInterfaceProvider") == {"op-package-provider"}
    assert ask_qnn(libraries, package, "OtherInterfaceProvider")[0] == 4006


def test_a_library_that_does_not_go_along_is_missed_by_both(
    emulator: Case, libraries: Path, tmp_path: Path
) -> None:
    other = tmp_path / "libQnnNotSent.so"
    subprocess.run(
        [needs.compiler(), "-shared", "-x", "c", "-", "-o", str(other)],
        input=b"int one;",
        check=True,
    )
    package = build(tmp_path, "-Wl,--no-as-needed", "-L.", "-lQnnNotSent", **GOOD)
    other.unlink()
    assert ask_fleet(emulator, package, None) == {"op-package-needs"}
    assert ask_qnn(libraries, package, PROVIDER)[0] == 4005


def test_the_emulator_knows_no_target_htp(emulator: Case, libraries: Path, tmp_path: Path) -> None:
    package = build(tmp_path, **GOOD)
    assert ask_qnn(libraries, package, PROVIDER, "CPU")[0] == 0
    assert ask_qnn(libraries, package, PROVIDER, "HTP")[0] == 4003
    spec = OpPackageSpec("FleetTest", package, htp=package)
    (read,) = with_op_packages(emulator.bundle, [spec]).op_packages
    assert ":HTP" not in net_run_option([read], dsp=False, lib=".")
