"""Genie on a board behind a real sshd, on the HTP emulator: libGenie of every release of QAIRT that
is on PyPI, and genie-t2t-run of a user's SDK (FLEET_QAIRT_SDK, with its libc++) over the newest.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.config.playbook import load_playbook
from fleet.device.texts import path_of
from fleet.engine.pool import DeviceResult
from fleet.model.errors import PreflightError
from fleet.runtimes.store import RuntimeStore
from tests.engine.conftest import Bench, own_bundle
from tests.support_runtime import NEW, X86, cached_runtime, cached_store

from .seen import ROOT, saw, saw_pair, sdk_version

__all__ = ["own_bundle"]
OLDER = ("2.47.0", "2.48.40", "2.49.40", "2.50.40")
OLDEST = ROOT / "assets" / "tiny-genie-qairt2.47.0"
ANSWER = "fleet puts a compiled model on the NPU of every board and brings the profile back."
pytestmark = pytest.mark.qairt


def deployed(bench: Bench, bundle: Path, version: str, store: RuntimeStore) -> DeviceResult[Any]:
    text = {
        "name": "genie",
        "bundle": str(bundle),
        "runtime": version,
        "run": {
            "runner": "genie", "prompt": "What is fleet?", "max_tokens": 40, "timeout": 60,
        },
    }  # fmt: skip
    path = bundle.with_suffix(".yaml")
    path.write_text(json.dumps(text))
    own = replace(bench, store=store, playbook=load_playbook(path))
    (result,) = own.operation().deploy()
    return result


@pytest.mark.parametrize("version", [*OLDER, NEW])
def test_a_binary_of_the_oldest_answers_on_every_libgenie(
    bench: Bench, own_bundle: Callable[[], Path], version: str
) -> None:
    """The same model, compiled by QAIRT 2.47.0, on the five libGenies that wheels hold."""
    cached_runtime(version, X86)
    bundle = own_bundle()
    shutil.copytree(OLDEST, bundle, dirs_exist_ok=True)
    result = deployed(bench, bundle, version, cached_store())
    assert result.error is None, result.error
    (record,) = result.records
    assert (record.problems, record.finish, record.text) == ((), "eos", ANSWER)
    assert (record.emulated, record.metrics.generated_tokens) == (True, 26)
    assert json.loads(Path(record.artifacts["profile.json"]).read_text())["components"]
    assert result.plan is not None
    rules = [found.rule for found in result.plan.findings]
    assert rules == ([] if version == OLDER[0] else ["runtime-differs"])
    on = "the HTP emulator of a board behind a real sshd (x86_64)"
    showed = "text and its profile, of a binary of QAIRT 2.47.0"
    saw_pair("libGenie, a binary of QAIRT 2.47.0", version, "works")
    saw("genie", f"libGenie through fleet_genie.py, QAIRT {version}", "", on, showed)


@pytest.mark.parametrize("version", OLDER)
def test_a_binary_that_is_newer_than_libgenie_is_refused_before_a_byte(
    bench: Bench, own_bundle: Callable[[], Path], tmp_path: Path, version: str
) -> None:
    """Beside it what the real libGenie says of the bundle, which it takes but for the binary."""
    library, bundle = cached_runtime(version, X86).root / "lib" / X86, own_bundle()
    argv = [sys.executable, "-I", str(path_of("fleet_genie.py")), "--config", "genie_config.json"]
    done = subprocess.run(
        [*argv, "--check", "--outcome", str(tmp_path / "outcome.json")], cwd=bundle, text=True,
        env={"LD_LIBRARY_PATH": str(library)}, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 11
    assert "Could not create context from binary for context index = 0 : err 5000" in done.stderr
    said = json.loads((tmp_path / "outcome.json").read_text())
    assert said["config"] == 0, "the configuration itself is taken"
    result = deployed(bench, bundle, version, cached_store())
    assert isinstance(result.error, PreflightError)
    assert "5000" in result.error.message
    assert result.bytes_sent == 0
    for qairt, outcome in ((version, "refused"), (NEW, "works")):  # NEW: in each tier
        saw_pair(f"libGenie, a binary of QAIRT {NEW}", qairt, outcome)


@pytest.fixture(params=[*OLDER, NEW])
def sdk(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[RuntimeStore, str, str]:
    """(a store with genie-t2t-run of the user's SDK beside the libraries of a wheel, the version
    of the SDK, that of the wheel).
    """
    told = os.environ.get("FLEET_QAIRT_SDK")
    if not told:
        pytest.skip("FLEET_QAIRT_SDK=/path is not set: no package has genie-t2t-run")
    wheel = cached_runtime(request.param, X86)
    root = tmp_path / "qairt" / wheel.build_id
    shutil.copytree(wheel.root / "lib" / X86, root / "lib" / X86)
    (root / "bin" / X86).mkdir(parents=True)
    shutil.copy(Path(told, "bin", X86, "genie-t2t-run"), root / "bin" / X86)
    for pattern in ("libc++*", "libunwind*"):
        for path in Path(told, "lib", X86).glob(pattern):
            shutil.copy(path, root / "lib" / X86)
    store = RuntimeStore(tmp_path / "store")
    store.add(str(root))
    return store, sdk_version(Path(told)), request.param


def test_genie_t2t_run_of_an_sdk(
    bench: Bench, own_bundle: Callable[[], Path], sdk: tuple[RuntimeStore, str, str]
) -> None:
    store, version, qairt = sdk
    bundle = own_bundle()
    shutil.copytree(OLDEST, bundle, dirs_exist_ok=True)
    result = deployed(bench, bundle, qairt, store)
    assert result.error is None, result.error
    (record,) = result.records
    assert (record.problems, record.finish, record.text) == ((), "eos", ANSWER)
    said = Path(record.artifacts["stdout.log"]).read_text()
    times = re.search(r"Token generation: (\d+) us, ([\d.]+) tokens/s", said)
    if times:  # SDK 2.25, which knows no --profile
        assert record.metrics.decode_ms == int(times[1]) / 1000
        assert record.metrics.decode_tps == float(times[2])
        assert record.metrics.generated_tokens == 25
    on = f"the HTP emulator (QAIRT {OLDER[0]} to {NEW}) of a board behind a real sshd (x86_64)"
    showed = "text, and its times as it prints them: it knows no --profile" if times else "profile"
    saw("genie", "genie-t2t-run", f"SDK {version}", on, showed)
    saw_pair(f"genie-t2t-run of SDK {version}, a binary of QAIRT 2.47.0", qairt, "works")
