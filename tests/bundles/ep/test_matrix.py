"""Pre-flight beside what really runs: binaries of five QAIRT versions on five runtimes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from fleet.bundles.ep.graphs import read_graphs
from fleet.bundles.ep.wrapping import write_wrappers
from fleet.bundles.inspect import inspect_bundle
from fleet.bundles.preflight import preflight
from fleet.data import load
from fleet.runners.ort import requirements
from fleet.runtimes.packages import packages_for
from fleet.runtimes.select import select_files
from fleet.runtimes.stage import silent
from tests.bundles.conftest import DATA, make_facts
from tests.programs.seen import saw_pair
from tests.support_runtime import X86, cache_root, cached_runtime

VERSIONS = [row["qairt"] for row in load("qairt_releases")["releases"]]
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
pytestmark = [pytest.mark.qairt, pytest.mark.slow]


@pytest.fixture(params=VERSIONS)
def runtime_version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_preflight_says_what_really_happens(
    runtime_version: str, tmp_path: Path, qnn_system: Path
) -> None:
    runtime = cached_runtime(runtime_version)
    selection = select_files(runtime, X86, "v73", "ort")
    names = requirements(runtime.build_id)
    packages = packages_for(
        names, PYTHON, X86, offline=False, progress=silent, root=cache_root() / "packages"
    )
    site = tmp_path / "site"
    for one in packages.files:
        place = tmp_path / one.name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(one.source)
    for one in selection.files:
        shutil.copy(one.source, site / "onnxruntime_qnn" / Path(one.name).name)
    for made_by in VERSIONS:
        bundle = tmp_path / made_by
        bundle.mkdir()
        binary = bundle / f"tiny_v73_soc77_qairt{made_by}.bin"
        shutil.copy(DATA / binary.name, binary)
        write_wrappers([read_graphs(binary, qnn_system)])
        found = preflight(
            inspect_bundle(bundle, qnn_system, kind="ort"),
            runtime,
            selection,
            X86,
            make_facts(machine="x86_64"),
        )
        refused = [one.rule for one in found if one.refuses]
        ran = really_runs(site, bundle)

        assert ran == (not refused), (made_by, runtime_version, refused)
    newest = runtime_version == VERSIONS[-1]
    outcome = "works" if newest else "works; newer binaries refused"
    saw_pair("onnxruntime-qnn of that QAIRT, binaries of all five", runtime_version, outcome)


def really_runs(site: Path, bundle: Path) -> bool:
    model = next(bundle.glob("*.onnx")).name
    spec = {
        "model": model, "inputs": {}, "reference": {}, "dimensions": {}, "iterations": 1,
        "warmups": 0, "profiling": "off", "session": {}, "seed": 0, "log": 3,
        "provider": {"backend_path": "libQnnHtp.so"},
    }  # fmt: skip
    (bundle / "spec.json").write_text(json.dumps(spec))
    script = str(files("fleet.device.npu") / "fleet_ort.py")
    argv = [sys.executable, "-I", script, "--site", str(site), "--spec", "spec.json"]
    done = subprocess.run(
        [*argv, "--outcome", "outcome.json", "--timeout", "60"],
        cwd=bundle,
        env={"LD_LIBRARY_PATH": str(site / "onnxruntime_qnn")},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in {0, 11}, done.stderr.decode()
    said = json.loads((bundle / "outcome.json").read_text())
    assert ("run_ms" in said) == (done.returncode == 0)
    return done.returncode == 0
