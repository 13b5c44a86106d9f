"""qnn-net-run and qnn-profile-viewer of a user's SDK on a board behind a real sshd.

FLEET_QAIRT_SDK is the folder of an SDK, with what its programs for x86_64 need beside its
libraries: libc++, and libpython3.10, which is carried to the board by `libraries:`. The graph is
ours, a model library, since a program reads only the context binaries of its own time.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.bundles.elfsymbols import read_linked
from fleet.config.playbook import load_playbook
from fleet.engine.pool import DeviceResult
from fleet.model.errors import PreflightError
from fleet.model.record import Record
from fleet.runtimes.store import RuntimeStore
from tests.engine.conftest import Bench
from tests.support_runtime import X86, cached_runtime, cached_store

from .seen import ROOT, VERSIONS, saw, saw_pair, sdk_version

HERE = Path(__file__).parent
OLDEST = ROOT / "assets" / "tiny-genie-qairt2.47.0" / "tiny_genie_part_1_of_1.bin"
TOLERANCE = 0.0079  # one quantum of the output


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RuntimeStore, str]:
    """(the SDK, a store with it, its version)."""
    told = os.environ.get("FLEET_QAIRT_SDK")
    if not told:
        pytest.skip("FLEET_QAIRT_SDK=/path is not set: no package has qnn-net-run")
    libraries = {**os.environ, "LD_LIBRARY_PATH": f"{told}/lib/x86_64-linux-clang"}
    program = f"{told}/bin/x86_64-linux-clang/qnn-net-run"
    tried = subprocess.run(
        [program, "--version"], env=libraries, capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    if tried.returncode == 127:
        pytest.skip(f"this machine lacks a library of the SDK's program: {tried.stderr.strip()}")
    store = RuntimeStore(tmp_path_factory.mktemp("store"))
    return Path(told), store, store.add(Path(told)).version


@pytest.fixture
def bundle(tmp_path: Path, sdk: tuple[Path, RuntimeStore, str]) -> Path:
    folder = tmp_path / "bundle"
    folder.mkdir()
    subprocess.run(
        ["g++", "-std=c++17", "-shared", "-fPIC", f"-I{sdk[0]}/include/QNN",
         str(HERE / "tiny_model.cpp"), "-o", str(folder / "libtiny.so")], check=True, timeout=120,
    )  # fmt: skip
    (folder / "x.raw").write_bytes(array("f", [(at % 100 - 50) / 100 for at in range(512)]))
    return folder


def deployed(
    bench: Bench,
    bundle: Path,
    sdk: tuple[Path, RuntimeStore, str],
    libraries: list[str],
    **options: object,
) -> DeviceResult[Any]:
    text = {
        "name": "net-run",
        "bundle": {"path": str(bundle), "kind": "qnn"},
        "runtime": sdk[2],
        "run": {
            "runner": "qnn-net-run", "timeout": 60, "libraries": libraries,
            "options": {"inputs": [["x:=x.raw"]], "num_inferences": 3, **options},
        },
    }  # fmt: skip
    path = bundle.parent / "playbook.yaml"
    path.write_text(json.dumps(text))
    own = replace(bench, store=sdk[1], playbook=load_playbook(path))
    (result,) = own.operation().deploy()
    return result


def python_of(sdk: Path) -> list[str]:
    """libpython, where it lies beside the libraries of the SDK."""
    return sorted(map(str, (sdk / "lib" / X86).glob("libpython*.so.1.0")))


def run(
    bench: Bench, bundle: Path, sdk: tuple[Path, RuntimeStore, str], **options: object
) -> Record:
    result = deployed(bench, bundle, sdk, python_of(sdk[0]), **options)
    assert result.error is None, result.error
    (record,) = result.records
    assert record.emulated
    return record


@pytest.mark.parametrize("level", ["client", "basic", "detailed", "optrace"])
def test_every_number_of_the_viewer_is_in_the_record(
    bench: Bench, bundle: Path, sdk: tuple[Path, RuntimeStore, str], level: str
) -> None:
    record = run(bench, bundle, sdk, profiling=level)
    assert record.problems == ()
    others = record.metrics.others
    assert others["inferences"].value == 3
    assert "profile.json" in record.artifacts, "read on the board"
    rows = [
        line.split(",")
        for line in Path(record.artifacts["profile.csv"]).read_text().splitlines()
        if ",NETRUN," in line or ",BACKEND," in line
    ]
    took = [float(row[2]) for row in rows if row[1] == "EXECUTE" and row[4] == "NETRUN"]
    assert len(took) == 3
    assert others["netrun_execute_us"].value == pytest.approx(sum(took) / 3)
    for phase, name in (("INIT", "init"), ("COMPOSE GRAPHS", "compose"), ("DE-INIT", "deinit")):
        (said,) = [float(row[2]) for row in rows if row[1] == phase and row[4] == "NETRUN"]
        assert others[f"netrun_{name}_us"].value == said
    ran = [float(row[2]) for row in rows if row[6] == "QNN (execute) time"]
    if level == "client":
        assert ran == []
    else:
        assert others["execute_us"].value == pytest.approx(sum(ran) / 3)
        assert others["execute_first_us"].value == ran[0]
        assert others["execute_later_us"].value == pytest.approx(sum(ran[1:]) / 2)
    ops = [op.name for op in record.ops]
    deep = level in {"detailed", "optrace"}
    assert ops == (["Input", "Relu1", "Add1", "Output"] if deep else [])
    cycles = [float(row[2]) for row in rows if row[6].startswith("Relu1:")]
    if deep:
        assert record.ops[1].value == pytest.approx(sum(cycles) / len(cycles))
    on = f"the HTP emulator of QAIRT {sdk[2]} of a board behind a real sshd (x86_64)"
    showed = "levels client, basic, detailed, optrace; every number of the viewer"
    saw("qnn-net-run", "qnn-net-run, qnn-profile-viewer", f"SDK {sdk_version(sdk[0])}", on, showed)


def test_outputs_and_the_performance_mode(
    bench: Bench, bundle: Path, sdk: tuple[Path, RuntimeStore, str]
) -> None:
    record = run(bench, bundle, sdk, keep_results=True, extra=["--log_level", "info"])
    assert record.problems == ()
    said = json.loads(Path(record.artifacts["performance.json"]).read_text())
    assert (said["perf_profile"], said["accepted"]) == ("burst", True)
    y = array("f", Path(record.artifacts["output"], "Result_0", "y.raw").read_bytes())
    x = array("f", (bundle / "x.raw").read_bytes())
    far = max(abs(max(a, 0) + a - b) for a, b in zip(x, y, strict=True))
    assert far <= 3 * TOLERANCE
    wrong = run(bench, bundle, sdk, perf_profile="warp")
    assert "the performance mode warp could not be set" in wrong.problems[0]
    native = run(bench, bundle, sdk, keep_results=True, native_outputs=True)
    about = Path(native.artifacts["output"], "y_native.raw.json").read_text()
    assert json.loads(about)["Datatype"] == "QNN_DATATYPE_UFIXED_POINT_8"


def test_without_its_libpython_it_is_refused_before_a_byte(
    bench: Bench, bundle: Path, sdk: tuple[Path, RuntimeStore, str]
) -> None:
    linked = read_linked(Path(sdk[0], "bin", X86, "qnn-net-run").read_bytes())
    assert linked is not None
    needed = linked.needed
    carried = [name for path in python_of(sdk[0]) if (name := Path(path).name) in needed]
    if not carried:
        pytest.skip("qnn-net-run of this SDK needs no libpython that lies beside its libraries")
    if has_library(carried[0]):
        pytest.skip(f"the board, this machine, has a {carried[0]} of its own")
    result = deployed(bench, bundle, sdk, [])
    assert isinstance(result.error, PreflightError)
    assert f"qnn-net-run would not start: {carried[0]}, which the loader" in result.error.message
    assert carried[0] in (result.error.hint or "")
    assert result.bytes_sent == 0


def has_library(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


@pytest.mark.qairt
@pytest.mark.parametrize("version", VERSIONS)
def test_a_package_that_has_no_qnn_net_run_is_refused_before_a_byte(
    bench: Bench, tmp_path: Path, version: str
) -> None:
    """It goes with the SDK that it came in: the wheels have QAIRT's libraries and no program."""
    cached_runtime(version, X86)
    folder = tmp_path / "bundle"
    folder.mkdir()
    shutil.copy(OLDEST, folder)
    (folder / "x.raw").write_bytes(b"x")
    text = {
        "name": "net-run", "bundle": {"path": str(folder), "kind": "qnn"}, "runtime": version,
        "run": {"runner": "qnn-net-run", "options": {"inputs": [["x.raw"]]}},
    }  # fmt: skip
    (tmp_path / "p.yaml").write_text(json.dumps(text))
    own = replace(bench, store=cached_store(), playbook=load_playbook(tmp_path / "p.yaml"))
    (result,) = own.operation().deploy()
    assert isinstance(result.error, PreflightError)
    assert "qnn-net-run" in result.error.message
    assert result.bytes_sent == 0
    saw_pair("qnn-net-run beside a package of QAIRT", version, "refused: it comes in an SDK")
