"""Genie over adb: what is said where it cannot run, and real sessions on boards and phones."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from fleet.config.inventory import load_inventory
from fleet.lab import LabPhones
from fleet.model.errors import PreflightError, RuntimeStoreError
from fleet.model.runtime import Runtime
from fleet.runtimes.store import RuntimeStore
from tests.standins import built
from tests.support_runtime import NEW, X86, cached_runtime

from .conftest import ROOT, Desk, Make

pytestmark = pytest.mark.qairt
PLAYBOOK = ROOT / "playbooks" / "tiny-genie.yaml"


@pytest.fixture(scope="module")
def wheel() -> Runtime:
    return cached_runtime(NEW, X86)


@pytest.fixture(scope="module")
def with_tool(wheel: Runtime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RuntimeStore]:
    """The wheel's own libraries in an SDK folder that also has a genie-t2t-run.

    The program is our stand-in: it opens the same real dialog through libGenie.
    """
    folder = tmp_path_factory.mktemp("sdk")
    root = folder / "qairt" / wheel.build_id
    shutil.copytree(wheel.root / "lib" / X86, root / "lib" / X86)
    (root / "bin" / X86).mkdir(parents=True)
    built("genie-t2t-run", root / "bin" / X86)
    store = RuntimeStore(folder / "store")
    store.add(str(root))
    yield store
    shutil.rmtree(folder, ignore_errors=True)


def test_without_python3_and_tool_it_says_what_is_needed(
    desk: Make, wheel: Runtime, qairt_store: RuntimeStore
) -> None:
    phone = desk(qairt_store, LabPhones(1, "x86_64", "phone"))
    (result,) = phone.operation(PLAYBOOK, offline=True).deploy()
    assert isinstance(result.error, PreflightError)
    assert "no genie-t2t-run for x86_64-linux-clang" in result.error.message
    dated = wheel.build_id[: len(wheel.version) + 7]
    assert f"fleet runtime fetch {dated} --sdk --target {X86}" in result.error.hint
    assert (result.outcome, result.bytes_sent) == ("refused", 0)


def test_without_any_android_runtime_it_says_which_one(
    desk: Make, qairt_store: RuntimeStore
) -> None:
    phone = desk(qairt_store, LabPhones(1, "sm8550", "phone"))
    (result,) = phone.operation(PLAYBOOK, offline=True).deploy()
    assert isinstance(result.error, RuntimeStoreError)
    assert "for aarch64-android" in result.error.message
    assert "--sdk --target aarch64-android" in result.error.hint


@pytest.mark.slow
def test_five_boards_and_five_phones_in_one_deploy(desk: Make, with_tool: RuntimeStore) -> None:
    """One playbook, one plan, one table: a real Genie dialog on each of ten devices."""
    mixed: Desk = desk(with_tool, LabPhones(5, "x86_64", "phone"), boards=5)
    assert {one.transport for one in mixed.hosts} == {"ssh", "adb"}
    plans = mixed.operation(PLAYBOOK, offline=True).plan()
    assert [one.outcome for one in plans] == ["planned"] * 10
    assert len({one.plan.manifest.id for one in plans if one.plan}) == 1, "one release for all"
    results = mixed.operation(PLAYBOOK, offline=True).deploy()
    assert [(one.outcome, one.error) for one in results] == [("changed", None)] * 10
    for one in results:
        counted = [record for record in one.records if record.counts]
        assert len(counted) == 5
        assert all(record.emulated for record in counted)
        assert all((record.metrics.decode_tps or 0) > 0 for record in counted)
        assert len({record.text for record in counted}) == 1
    assert len({one.records[0].text for one in results}) == 1, "the same model, the same words"
    again = mixed.operation(PLAYBOOK, offline=True).deploy()
    assert [(one.outcome, one.bytes_sent) for one in again] == [("unchanged", 0)] * 10
    assert all(one.round_trips <= 3 for one in again)


@pytest.mark.slow
def test_a_phone_that_is_off_ends_only_its_own_work(desk: Make, with_tool: RuntimeStore) -> None:
    pair = desk(with_tool, LabPhones(2, "x86_64", "phone"))
    pair.lab.power_off("phone002")
    good, bad = pair.operation(PLAYBOOK, offline=True).deploy()
    assert (good.outcome, good.error) == ("changed", None)
    assert bad.outcome == "unreachable"
    assert bad.error is not None
    assert bad.error.hint


def test_another_phone_at_the_address_is_refused(desk: Make, with_tool: RuntimeStore) -> None:
    one = desk(with_tool, LabPhones(1, "x86_64", "phone"))
    text = one.lab.inventory.read_text("utf-8")
    inventory = one.lab.inventory.with_name("named.yaml")
    inventory.write_text(text.replace("}\n", ', identity: "PHONE002"}\n'), "utf-8")
    one.hosts = load_inventory(inventory).hosts
    (result,) = one.operation(PLAYBOOK, offline=True).deploy()
    assert result.error is not None
    assert "ro.serialno PHONE001" in result.error.message
    assert result.bytes_sent == 0
