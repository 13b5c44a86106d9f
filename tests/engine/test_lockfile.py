"""Locks and drift on a real sshd: what is caught, in how many round trips, and nothing written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from fleet.engine.deploy.drift import drift
from fleet.engine.deploy.release_builder import ReleaseBuilder
from fleet.engine.pool import DeviceResult
from fleet.facts.gather import gather
from fleet.model.errors import LockFileError, RuntimeStoreError
from fleet.model.facts import Facts
from fleet.model.lockfile import Lock, differences
from fleet.runtimes.store import RuntimeStore
from tests.support_runtime import ARM, X86

from .conftest import Bench

pytestmark = pytest.mark.qairt
HASH = "a" * 64


def lock_of(bench: Bench) -> Lock:
    _, releases = bench.operation().lock()
    return Lock(bench.playbook.name, HASH, releases)


def compare(bench: Bench, lock: Lock, **changes: object) -> DeviceResult[Any]:
    (found,) = drift([bench.host], lock, bench.events.append, **changes)  # type: ignore[arg-type]
    return found


def test_a_lock_says_what_is_deployed(bench: Bench) -> None:
    lock = lock_of(bench)
    assert not bench.base.exists()
    (done,) = bench.operation(run="never", lock=lock).deploy()
    assert done.error is None, done.error
    (release,) = lock.releases
    assert bench.current() == release.id
    for one in release.files:
        placed = bench.base / "current" / "tiny-genie" / one.name
        assert (placed.resolve().name, placed.stat().st_size) == (one.sha256, one.size)
    archs = {one.name: one.arch for one in release.files}
    assert archs["lib/libGenie.so"] == "x86_64"
    assert archs["bundle/tiny_genie_part_1_of_1.bin"] == "hexagon-v73"
    assert archs["bundle/tokenizer.json"] == ""


@pytest.mark.parametrize("frozen", [False, True])
def test_a_changed_bundle_changes_nothing_on_the_board(
    bench: Bench, own_bundle: Callable[[], Path], frozen: bool
) -> None:
    bundle = own_bundle()
    bench.playbook = replace(bench.playbook, bundle=bundle)
    lock = lock_of(bench)
    (bundle / "sample_prompt.txt").write_text("changed")
    (done,) = bench.operation(run="never", lock=lock, frozen=frozen).deploy()
    assert isinstance(done.error, LockFileError)
    assert "bundle/sample_prompt.txt" in done.text
    assert done.bytes_sent == 0
    assert not (bench.base / "store").exists()
    (bundle / "sample_prompt.txt").unlink()
    (gone,) = bench.operation(run="never", lock=lock, frozen=frozen).deploy()
    assert (
        "bundle/sample_prompt.txt is in the lock file, but the release no longer contains it"
        in gone.text
    )


def test_another_runtime_is_an_error_for_locked_and_not_taken_by_frozen(bench: Bench) -> None:
    lock = lock_of(bench)
    (release,) = lock.releases
    other = structs.replace(
        lock, releases=(structs.replace(release, build_id="2.50.40.260101000000"),)
    )
    (locked,) = bench.operation(run="never", lock=other).deploy()
    assert "QAIRT is 2.51.0" in locked.text
    assert "the lock file has 2.50.40" in locked.text
    (frozen,) = bench.operation(run="never", lock=other, frozen=True).deploy()
    assert isinstance(frozen.error, RuntimeStoreError)
    assert "fleet runtime fetch 2.50.40.260101000000" in frozen.error.hint
    assert not (bench.base / "store").exists()


def test_a_kind_of_device_that_is_not_locked_is_refused(bench: Bench) -> None:
    lock = lock_of(bench)
    bench.host = replace(bench.host, soc="QCS6490")
    for frozen in (False, True):
        (done,) = bench.operation(run="never", lock=lock, frozen=frozen).deploy()
        assert isinstance(done.error, LockFileError)
        assert "no release for devices of x86_64-linux-clang with Hexagon v68" in done.text


def test_each_kind_has_its_own_section(bench: Bench, qairt_store: RuntimeStore) -> None:
    work = ReleaseBuilder(bench.playbook, qairt_store, bench.events.append)
    from fleet.model.lockfile import locked

    kinds = ((X86, "v73"), (ARM, "v73"))
    releases = tuple(
        locked(work.manifest(work.parts(*kind)), *kind, work.kinds(*kind)) for kind in kinds
    )
    lock = Lock("tiny-genie", HASH, releases)
    evk = lock.required(ARM, "v73")
    archs = {one.name: one.arch for one in evk.files}
    assert archs["dsp/libQnnHtpV73Skel.so"] == "hexagon-v73"
    assert archs["lib/libQnnHtp.so"] == "aarch64"
    frozen = ReleaseBuilder(bench.playbook, qairt_store, bench.events.append, frozen=lock)
    for kind, release in zip(kinds, releases, strict=True):
        again = locked(frozen.manifest(frozen.parts(*kind)), *kind, frozen.kinds(*kind))
        assert differences(release, again) == []


def test_drift_reads_in_two_round_trips(bench: Bench) -> None:
    lock = lock_of(bench)
    empty = compare(bench, lock)
    assert (empty.outcome, empty.fine) == ("drifted", False)
    assert "the current release is none" in empty.text
    assert not bench.base.exists()
    bench.operation(run="never").deploy()
    before = bench.tree()
    for verify in (False, True):
        found = compare(bench, lock, verify=verify)
        assert (found.outcome, found.round_trips, found.bytes_sent) == ("ok", 2, 0), found.text
    assert bench.tree() == before


def test_drift_names_each_kind_of_damage(bench: Bench) -> None:
    lock = lock_of(bench)
    bench.operation(run="never").deploy()
    folder = (bench.base / "current" / "tiny-genie").resolve()
    (folder / "lib" / "libGenie.so").unlink()
    blob = (folder / "bundle" / "tokenizer.json").resolve()
    blob.chmod(0o644)
    blob.write_bytes(b"x")
    (folder / "bundle" / "sample_prompt.txt").resolve().unlink()
    (bench.base / "meta" / "tiny-genie" / folder.name / ".installed").unlink()
    (release,) = lock.releases
    assert [*compare(bench, lock).answer.differences] == [
        f"the current release {release.id} is not complete: its deploy did not finish",
        "bundle/sample_prompt.txt is missing",
        "bundle/tokenizer.json is damaged",
        "the link to lib/libGenie.so is missing",
    ]


def test_drift_sees_another_release(bench: Bench, own_bundle: Callable[[], Path]) -> None:
    lock = lock_of(bench)
    bundle = own_bundle()
    (bundle / "sample_prompt.txt").write_text("Another prompt")
    bench.playbook = replace(bench.playbook, bundle=bundle)
    bench.operation(run="never").deploy()
    found = compare(bench, lock)
    assert f"is {bench.current()}, but the lock file has {lock.releases[0].id}" in found.text
    assert "bundle/sample_prompt.txt is missing" in found.text


def test_drift_does_not_call_unhashed_files_verified(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fleet.engine import states as module

    lock = lock_of(bench)
    bench.operation(run="never").deploy()

    def without(*args: Any, **options: Any) -> Facts:
        facts = gather(*args, **options)
        return structs.replace(facts, tools=structs.replace(facts.tools, sha256=()))

    monkeypatch.setattr(module, "gather", without)
    assert compare(bench, lock).outcome == "ok"
    found = compare(bench, lock, verify=True)
    assert found.outcome == "drifted"
    assert "could not check the contents of the files" in found.text


def test_drift_follows_the_target_of_the_playbook(bench: Bench) -> None:
    lock = lock_of(bench)
    assert "no release for aarch64" in compare(bench, lock, target=ARM).text
    bench.operation(run="never").deploy()
    assert compare(bench, lock, target=X86).outcome == "ok"


def test_drift_goes_on_beside_a_board_that_is_off(bench: Bench) -> None:
    lock = lock_of(bench)
    bench.operation(run="never").deploy()
    absent = replace(bench.host, name="absent", port=9, connect_timeout=2.0)
    one, two = drift([absent, bench.host], lock, bench.events.append)
    assert (one.outcome, two.outcome) == ("unreachable", "ok")
