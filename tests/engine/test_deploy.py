"""The main job on a real sshd, with the real QAIRT libraries and a real context binary."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from fleet.config.playbook import load_playbook
from fleet.device.texts import path_of
from fleet.engine.deploy import releases
from fleet.engine.status import status
from fleet.engine.transfer.context import TransferOptions
from fleet.facts.gather import gather
from fleet.model.errors import DiskFullError, HealthError, PreflightError, UnreachableError
from fleet.model.events import DeviceDone, Progress, StepStarted
from fleet.model.facts import Facts
from fleet.model.plain import to_plain
from fleet.model.playbook import RunSpec
from fleet.runners.base import Kit
from fleet.runners.registry import RUNTIME
from tests.chaos import Chaos
from tests.support_runtime import NEW

from .conftest import Bench

pytestmark = pytest.mark.qairt
ANSWER = "NPU"


def test_deploy_runs_and_brings_the_profile_back(bench: Bench) -> None:
    (done,) = bench.operation().deploy()
    assert done.error is None, done.error
    assert done.outcome == "changed"
    assert bench.current() == done.plan.manifest.id  # type: ignore[union-attr]
    assert [r.warmup for r in done.records] == [True, False, False]
    for record in done.records:
        assert record.problems == ()
        assert ANSWER in record.text
        assert record.finish == "eos"
        assert record.emulated
        assert record.metrics.init_ms
        assert record.metrics.ttft_ms
        assert record.metrics.prompt_tps
        assert record.metrics.decode_tps
        assert record.files["lib/libGenie.so"]
    folder = bench.runs.root / done.records[1].run_id / "board" / "0"
    assert json.loads((folder / "profile.json").read_text())["header"]["artifact_type"]
    saved = json.loads((folder / "record.json").read_text())
    assert saved["counts"] is True
    assert saved["emulated"] is True
    assert saved["identity"].startswith("host-key SHA256:")
    assert ANSWER in (folder / "stdout.log").read_text()
    assert not list((bench.base / "runs").iterdir())


def test_second_deploy_sends_nothing_and_changes_nothing(bench: Bench) -> None:
    bench.operation(run="never").deploy()
    before = bench.tree()
    (done,) = bench.operation().deploy()
    assert done.outcome == "unchanged"
    assert done.bytes_sent == 0
    assert done.round_trips <= 3
    assert done.records == []
    assert bench.tree() == before


def test_plan_shows_everything_and_touches_nothing(bench: Bench) -> None:
    (done,) = bench.operation().plan()
    assert done.outcome == "planned"
    assert done.plan is not None
    kinds = [to_plain(action)["action"] for action in done.plan.actions]
    assert kinds == ["SendBlobs", "StageRelease", "ProbeHealth", "SwitchRelease", "PruneReleases"]
    assert done.plan.bytes > 100_000_000
    assert done.round_trips == 2
    assert not bench.base.exists()
    json.dumps(to_plain(done.plan))
    assert pickle.loads(pickle.dumps(done.plan)) == done.plan


def test_run_measures_what_is_deployed_only(bench: Bench) -> None:
    (refused,) = bench.operation().run()
    assert refused.outcome == "failed"
    assert "fleet deploy" in refused.error.hint  # type: ignore[union-attr]
    bench.operation(run="never").deploy()
    (done,) = bench.operation().run()
    assert done.outcome == "ran"
    assert len(done.records) == 3
    assert done.bytes_sent == 0


def test_events_tell_the_story(bench: Bench) -> None:
    bench.operation(run="never").deploy()
    steps = [e.step for e in bench.events if isinstance(e, StepStarted) and e.host]
    assert steps == ["send", "stage", "health", "switch", "prune"]
    progress = [e for e in bench.events if isinstance(e, Progress)]
    assert progress[-1].done == progress[-1].total
    assert [e.done for e in progress] == sorted(e.done for e in progress)
    (end,) = [e for e in bench.events if isinstance(e, DeviceDone)]
    assert end.emulated
    assert end.bytes_sent == progress[-1].total


@pytest.mark.parametrize(
    ("carrier", "budgets"),
    [
        ("paramiko", [30_000_000, 50_000_000, 10_000_000]),
        ("ssh", [None, 30_000_000, None, 50_000_000, None, 10_000_000]),
    ],
)
def test_a_cut_link_is_resumed_at_the_byte(
    bench: Bench, carrier: str, budgets: list[int | None]
) -> None:
    """By whatever way the bytes go; `None` are connections that live."""
    (planned,) = bench.operation().plan()
    total = planned.plan.bytes  # type: ignore[union-attr]
    with Chaos(bench.server.port, budgets) as cable:
        bench.host = cable.through(bench.host, bench.base.parent)
        transfer = TransferOptions(carrier=carrier, compress="never")
        (done,) = bench.operation(run="never", transfer=transfer).deploy()
        assert cable.cuts == 3
    assert done.error is None, done.error
    assert done.outcome == "changed"
    window = 3 * 5_000_000  # what was in flight at each cut
    assert total <= done.bytes_sent <= total + window


def test_a_link_that_stays_broken_is_said_and_harms_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleet.engine.transfer.upload.WAIT_SECONDS", 0.01)
    with Chaos(bench.server.port, [20_000_000] + [50_000] * 20) as cable:
        host = bench.host
        bench.host = cable.through(host, bench.base.parent)
        (broken,) = bench.operation(
            run="never", transfer=TransferOptions(carrier="paramiko")
        ).deploy()
    assert broken.outcome == "unreachable"
    assert "resumes where it stopped" in broken.error.hint  # type: ignore[union-attr]
    assert bench.current() is None
    bench.host = host
    (done,) = bench.operation(run="never").deploy()
    assert done.outcome == "changed"
    assert done.bytes_sent < done.plan.bytes + 1  # type: ignore[union-attr]
    assert done.bytes_sent < 110_000_000


def test_a_release_without_a_session_is_not_switched_to(
    bench: Bench, own_bundle: Callable[[], Path]
) -> None:
    bench.operation(run="never").deploy()
    good = bench.current()
    bad = own_bundle()
    config = json.loads((bad / "genie_config.json").read_text())
    config["dialog"]["engine"]["backend"]["QnnHtp"]["kv-dim"] = "sixteen"
    (bad / "genie_config.json").write_text(json.dumps(config))
    playbook = bench.playbook
    bench.playbook = replace(playbook, bundle=bad)
    (failed,) = bench.operation(run="never").deploy()
    assert isinstance(failed.error, HealthError)
    assert failed.outcome == "failed"
    assert bench.current() == good
    (again,) = bench.operation(run="never").deploy()
    assert isinstance(again.error, HealthError), "a failed install must be tried again"
    bench.playbook = playbook
    (same,) = bench.operation().deploy()
    assert same.outcome == "unchanged"


def test_upgrade_then_rollback_without_upload(bench: Bench, own_bundle: Callable[[], Path]) -> None:
    bench.operation(run="never").deploy()
    old = bench.current()
    newer = own_bundle()
    (newer / "sample_prompt.txt").write_text("Another prompt")
    bench.playbook = replace(bench.playbook, bundle=newer)
    (upgraded,) = bench.operation(run="never").deploy()
    assert upgraded.bytes_sent < 10_000, "the runtime is not sent twice"
    new = bench.current()
    assert new != old
    (back,) = releases.rollback([bench.host], "tiny-genie", bench.events.append)
    assert back.outcome == "changed", back.error
    assert back.bytes_sent == 0
    assert bench.current() == old
    (forth,) = releases.rollback([bench.host], "tiny-genie", bench.events.append, to=new)
    assert forth.outcome == "changed"
    assert bench.current() == new
    (shown,) = status([bench.host], bench.events.append, parallel=1)
    (item,) = shown.answer.deployed
    assert (item.id, item.state, item.previous) == (new, "installed", old)


@pytest.mark.parametrize("name", ["tiny-genie", "nothing"])
def test_rollback_without_a_past_says_so(bench: Bench, name: str) -> None:
    bench.operation(run="never").deploy()
    now = bench.current()
    (done,) = releases.rollback([bench.host], name, bench.events.append)
    assert done.outcome == "failed"
    assert bench.current() == now


def test_damage_is_repaired_and_only_what_is_damaged_is_sent(bench: Bench) -> None:
    bench.operation(run="never").deploy()
    folder = bench.base / "current" / "tiny-genie"
    blob = (folder / "bundle" / "tokenizer.json").resolve()
    was = blob.stat()
    size = was.st_size
    blob.chmod(0o644)
    blob.write_bytes(b"x" * size)
    os.utime(blob, ns=(was.st_atime_ns, was.st_mtime_ns))
    (same,) = bench.operation(run="never").deploy()
    assert same.outcome == "unchanged", "size and time are believed without --verify"
    (fixed,) = bench.operation(run="never", verify=True).deploy()
    assert fixed.outcome == "changed", fixed.error
    assert fixed.bytes_sent == size
    (folder / "lib" / "libGenie.so").unlink()
    (linked,) = bench.operation(run="never").deploy()
    assert (linked.outcome, linked.bytes_sent) == ("changed", 0)


def test_full_disk_is_one_error_and_the_old_release_lives(bench: Bench, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small tmpfs")
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(small)], check=True)
    try:
        bench.host = replace(bench.host, base_dir=str(small / "base"))
        (refused,) = bench.operation(run="never").deploy()
        assert isinstance(refused.error, PreflightError)
        assert refused.outcome == "refused"
        assert "disk" in refused.text
        assert not (small / "base").exists()
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_disk_that_fills_during_the_upload(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pre-flight saw room; somebody else took it. The real write fails on the device."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small tmpfs")
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(small)], check=True)
    monkeypatch.setattr("fleet.engine.deploy.plan.preflight", lambda *_, **__: ())
    try:
        bench.host = replace(bench.host, base_dir=str(small / "base"))
        (done,) = bench.operation(run="never").deploy()
        assert isinstance(done.error, DiskFullError)
        assert "No space left on device" in done.text
        assert not (small / "base" / "current" / "tiny-genie").exists()
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_device_without_a_hash_tool_is_read_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fleet.engine import states

    def without(*args: Any, short: bool) -> Facts:
        facts = gather(*args, short=short)
        return structs.replace(
            facts,
            tools=structs.replace(facts.tools, python3_whole=False, sha256=(), dd_fullblock=False),
        )

    monkeypatch.setattr(states, "gather", without)
    (done,) = bench.operation(run="never").deploy()
    assert done.outcome == "changed", done.error
    assert any("reads the files back" in note for note in done.plan.notes)  # type: ignore[union-attr]


def test_one_broken_device_ends_only_its_own_work(bench: Bench) -> None:
    absent = replace(bench.host, name="absent", port=9, connect_timeout=2.0)
    operation = bench.operation(run="never")
    operation.hosts = (absent, bench.host)
    one, two = operation.deploy()
    assert (one.outcome, two.outcome) == ("unreachable", "changed")
    assert isinstance(one.error, UnreachableError)


def test_a_runtime_without_a_bundle_is_a_release_that_opens_a_session(
    bench: Bench, tmp_path: Path
) -> None:
    path = tmp_path / "runtime.yaml"
    path.write_text(f'name: qairt\nruntime: "{NEW}"\n')
    bench.playbook = load_playbook(path)
    (done,) = bench.operation().deploy()
    assert done.error is None, done.error
    assert (done.outcome, done.records) == ("changed", [])
    manifest = done.plan.manifest  # type: ignore[union-attr]
    assert bench.current() == manifest.id
    names = {item.name for item in manifest.files}
    assert {"lib/libQnnHtp.so", "lib/libGenie.so", "run/fleet_session.py"} <= names
    assert not any(name.startswith("bundle/") for name in names)
    assert any(note.startswith("no bundle; runtime 2.51") for note in done.plan.notes)  # type: ignore[union-attr]
    script = f'. "{bench.base}/env/qairt.sh" && test -e "$QNN_SDK_ROOT/lib/libQnnHtp.so"'
    assert subprocess.run(["sh", "-c", script], check=False, timeout=60).returncode == 0
    (again,) = bench.operation().deploy()
    assert (again.outcome, again.bytes_sent) == ("unchanged", 0)


def test_a_runtime_that_opens_no_session_fails_its_probe(tmp_path: Path) -> None:
    library = tmp_path / "libQnnHtp.so"
    library.write_bytes(b"\x7fELF")
    start = RUNTIME.health(Kit(None, RunSpec()), 20.0)  # type: ignore[arg-type]
    assert start is not None
    where = {"{release}/run/fleet_session.py": str(path_of("fleet_session.py"))}
    where["{release}/lib/libQnnHtp.so"] = str(library)
    argv = [where.get(word, word) for word in start.argv]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, '"load": ' in done.stdout) == (1, True)
