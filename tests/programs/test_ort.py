"""Binaries of five QAIRT versions on the onnxruntime-qnn of each, on a board behind a real sshd:
what pre-flight says is what really happens.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleet.bundles.ep.graphs import read_graphs
from fleet.bundles.ep.wrapping import write_wrappers
from fleet.config.playbook import load_playbook
from fleet.model.errors import PreflightError, SuiteError
from fleet.runners.ort import requirements
from fleet.runtimes.packages import packages_for
from fleet.runtimes.select import select_files
from fleet.runtimes.stage import file_lock, silent
from tests.bundles.conftest import DATA
from tests.engine.conftest import Bench
from tests.support_runtime import NEW, X86, cache_root, cached_runtime, cached_store
from tests.transport.sshd import Sshd
from tests.verify.networks import network

from .seen import VERSIONS, saw, saw_pair

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
pytestmark = pytest.mark.qairt


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One base folder: the packages of five versions have a gigabyte."""
    folder = tmp_path_factory.mktemp("ort")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def own(bench: Bench, board_server: Sshd, base: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("FLEET_HOME", str(cache_root() / "home"))  # packages outlive the run
    host = board_server.host(base_dir=str(base), soc="QCS9075")
    return replace(bench, base=base, host=host, store=cached_store())


def made(folder: Path, made_by: str) -> Path:
    """A bundle of fleet's wrapper and the binary of that QAIRT."""
    bundle = folder / made_by
    bundle.mkdir()
    binary = bundle / f"tiny_v73_soc77_qairt{made_by}.bin"
    shutil.copy(DATA / binary.name, binary)
    system = cached_runtime(NEW, X86).root / "lib" / X86 / "libQnnSystem.so"
    write_wrappers([read_graphs(binary, system)])
    return bundle


@pytest.mark.parametrize("qairt", VERSIONS)
def test_each_pair_works_or_is_refused_before_a_byte(
    own: Bench, tmp_path: Path, qairt: str
) -> None:
    cached_runtime(qairt, X86)
    for made_by in VERSIONS:
        bundle = made(tmp_path, made_by)
        text = {
            "name": "pair", "bundle": {"path": str(bundle), "kind": "ort"}, "runtime": qairt,
            "run": {"repeats": 1, "timeout": 60, "options": {"iterations": 1, "warmups": 0}},
        }  # fmt: skip
        (tmp_path / "p.yaml").write_text(json.dumps(text))
        with file_lock(cache_root() / "packages.lock", 900):
            bench = replace(own, playbook=load_playbook(tmp_path / "p.yaml"))
            (result,) = bench.operation().deploy()
        if result.error is None:
            (record,) = result.records
            assert (record.problems, record.emulated) == ((), True), (made_by, qairt)
            assert record.origin["build_id"].startswith(qairt)
            outcome = "works"
        else:
            assert isinstance(result.error, PreflightError), (made_by, qairt, result.error)
            said = result.error.message
            assert "binary-newer-than-runtime" in said
            assert f"with QAIRT {made_by}" in said, "both versions"
            assert f"the older QAIRT {qairt}" in said
            assert result.bytes_sent == 0
            assert not really_runs(site_of(qairt, tmp_path), bundle), (made_by, qairt)
            outcome = "refused"
        if made_by == qairt == NEW:
            on = f"the HTP emulator ({VERSIONS[0]} to {NEW}) of a board behind a real sshd (x86_64)"
            showed = "a context binary in fleet's wrapper runs; no node on the CPU"
            saw("ort", "onnxruntime-qnn, EPContext wrappers", "2.3.0 to 2.7.0", on, showed)
        saw_pair(f"onnxruntime-qnn of that QAIRT, a binary of QAIRT {made_by}", qairt, outcome)


def site_of(qairt: str, folder: Path) -> Path:
    """The packages as a board gets them, to try what fleet refuses."""
    if (folder / "site").is_dir():
        return folder / "site"
    runtime = cached_runtime(qairt, X86)
    packages = packages_for(
        requirements(runtime.build_id), PYTHON, X86, offline=False, progress=silent,
        root=cache_root() / "packages",
    )  # fmt: skip
    for one in packages.files:
        place = folder / one.name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(one.source)
    for one in select_files(runtime, X86, "v73", "ort").files:
        shutil.copy(one.source, folder / "site" / "onnxruntime_qnn" / Path(one.name).name)
    return folder / "site"


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
        env={**os.environ, "LD_LIBRARY_PATH": str(site / "onnxruntime_qnn")},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in {0, 11}, done.stderr.decode()
    said = json.loads((bundle / "outcome.json").read_text())
    assert ("run_ms" in said) == (done.returncode == 0)
    return done.returncode == 0


def test_the_samples_of_verify_in_one_session(own: Bench, tmp_path: Path) -> None:
    """Right outputs pass, a wrong one fails, and a wrong shape is refused before a byte."""
    assets = Path(__file__).parents[2] / "assets" / "tiny-ort"
    shutil.copytree(assets, tmp_path / "b")
    wrong = np.load(assets / "out.npy")
    np.save(tmp_path / "wrong.npy", np.roll(wrong, 1))
    np.save(tmp_path / "short.npy", wrong[..., :3])
    text = """
name: samples
bundle: {{path: b, kind: ort}}
verify:
  gate: off
  samples:
    - {{name: good, inputs: {{x: b/x.npy}}, expected: {{out: b/out.npy}}}}
    - {{name: other, inputs: {{x: b/x.npy}}, expected: {{out: {file}}}}}
"""
    for file, words in (("b/out.npy", ""), ("wrong.npy", "only 1 of 2 samples")):
        (tmp_path / "p.yaml").write_text(text.format(file=file))
        book = replace(own, playbook=load_playbook(tmp_path / "p.yaml"))
        (deployed,) = book.operation().deploy()
        assert deployed.error is None, deployed.error
        (result,) = book.operation().verify()
        assert words in (result.error.message if result.error else "")
        assert bool(result.error) == bool(words)
        assert result.records[0].suite is not None
        assert result.records[0].suite.answers[0].passed
    (tmp_path / "p.yaml").write_text(text.format(file="short.npy"))
    with pytest.raises(SuiteError, match="the output out is"):
        replace(own, playbook=load_playbook(tmp_path / "p.yaml")).operation().verify()


def test_the_first_wrong_node_of_a_network(own: Bench, tmp_path: Path) -> None:
    """The bundle has a wrong weight; every tensor is seen on the emulator, the first one named."""

    def wrong(values: dict[str, Any]) -> None:
        values["c_w"] = values["c_w"][:, ::-1].copy()

    for name, change in (("right", None), ("wrong", wrong)):
        (tmp_path / name).mkdir()
        network(tmp_path / name / "model.onnx", change)
    np.save(tmp_path / "x.npy", np.random.default_rng(1).normal(size=(4, 8)).astype("f"))
    for name, node in (("right", ""), ("wrong", "c")):
        text = {
            "name": "nodes", "bundle": {"path": name, "kind": "ort"},
            "verify": {"gate": "off", "reference": "right/model.onnx",
                       "samples": [{"inputs": {"x": "x.npy"}}]},
        }  # fmt: skip
        (tmp_path / "p.yaml").write_text(json.dumps(text))
        book = replace(own, playbook=load_playbook(tmp_path / "p.yaml"))
        (deployed,) = book.operation().deploy()
        assert deployed.error is None, deployed.error
        (result,) = book.operation().verify(nodes=True)
        assert bool(result.error) == bool(node)
        (record,) = result.records
        assert record.suite is not None
        assert [row.node for row in record.suite.nodes] == ["a", "relu", "r", "c"]
        assert [row.node for row in record.suite.nodes if row.fault] == [node] * bool(node)
        kept = json.loads((book.runs.root / record.run_id / record.host / "samples/record.json")
                          .read_text())  # fmt: skip
        assert [row["own_steps"] <= 3 for row in kept["suite"]["nodes"]][:3] == [True] * 3
        assert record.emulated
