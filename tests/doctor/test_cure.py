"""`--fix`: the device is healed and a session opens, or it is as it was."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fleet.config.playbook import load_playbook
from fleet.doctor.cure import Cure, apply_cures, plan_cures
from fleet.doctor.examine import Round, examine
from fleet.doctor.recent import RunFailure
from fleet.engine.deploy.operation import Operation, Resources
from fleet.engine.options import DeployOptions
from fleet.lab import Lab
from fleet.model.diagnosis import ADVICE, PROBLEM, Diagnosis
from fleet.model.inventory import Host
from fleet.model.playbook import Playbook
from fleet.model.system import SystemSpec
from fleet.profiles.runs import RunStore
from tests.provision.conftest import TREE, changes, host_of
from tests.support_runtime import cached_runtime, cached_store

from .conftest import PLAYBOOK, ids

pytestmark = [pytest.mark.root, pytest.mark.qairt]


@dataclass
class Patient:
    """A board that was bare, was provisioned, and has a release."""

    lab: Lab
    host: Host
    playbook: Playbook
    runs: RunStore

    def look(self, playbook: Playbook | None = None) -> Diagnosis:
        (found,) = examine(
            [self.host], lambda _: None, Round(playbook=playbook, runtimes=cached_store())
        )
        return found

    def cure(self, playbook: Playbook | None = None) -> Cure:
        (cure,) = plan_cures([self.host], [self.look(playbook)])
        apply_cures([cure], Round(playbook=playbook), lambda _: None, runs=self.runs)
        return cure

    def root(self, script: str) -> str:
        done = self.lab.exec("lab001", ["sh", "-c", script])
        assert done.returncode == 0, done.stderr
        return done.stdout

    def tree(self) -> dict[str, str]:
        done = self.lab.exec("lab001", ["python3", "-c", TREE])
        found: dict[str, str] = json.loads(done.stdout)
        return found


@pytest.fixture(scope="module")
def patient(namespaces: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Patient]:
    root = tmp_path_factory.mktemp("patient")
    cached_runtime()
    system = SystemSpec(fastrpc="auto", packages=("libatomic1",))
    playbook = replace(load_playbook(PLAYBOOK), system=system, run=None)
    with Lab.up(root / "lab", count=1, profile="bare-evk", kind="namespace", base_port=0) as lab:
        found = Patient(lab, host_of(lab, "lab001"), playbook, RunStore(root / "runs"))
        operation = Operation(
            playbook,
            [found.host],
            lambda _: None,
            options=DeployOptions(run="never"),
            resources=Resources(cached_store(), found.runs),
        )
        (result,) = operation.deploy()
        assert result.fine, result.error
        yield found


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("node-root-only", "fastrpc-node-permission"),
        ("left-group", "dma-heap-permission"),
        ("old-rule", "fastrpc-node-permission"),
    ],
)
def test_rights_are_healed(patient: Patient, fault: str, cause: str) -> None:
    patient.lab.fault("lab001", fault)
    try:
        assert ids(patient.look())[0] == cause
        cure = patient.cure()
        assert (cure.remedy.cause, cure.remedy.operation, cure.outcome) == (
            cause,
            "provision",
            "healed",
        ), cure.why
        after = patient.look()
        assert after.verdict != PROBLEM
        assert any(one.id == "session" and one.status == "ok" for one in after.checks)
    finally:
        patient.lab.heal("lab001", fault)


def test_a_bare_board_is_healed(patient: Patient) -> None:
    patient.root("apt-get -y -q purge qcom-fastrpc1 >/dev/null 2>&1; ldconfig")
    assert ids(patient.look())[0] == "fastrpc-userspace-missing"
    cure = patient.cure()
    assert cure.outcome == "healed", cure.why
    assert any("qcom-fastrpc1" in one for one in cure.remedy.commands)
    assert patient.look().verdict != PROBLEM


def test_only_the_versioned_name_is_healed_without_root(patient: Patient) -> None:
    patient.root("rm /home/ubuntu/fleet/shim/libcdsprpc.so")
    found = patient.look()
    assert ids(found)[0] == "fastrpc-userspace-missing"
    assert "only a versioned libcdsprpc" in next(
        o.text for o in found.checks if o.id == "libcdsprpc"
    )
    cure = patient.cure()
    assert cure.outcome == "healed", cure.why
    assert cure.remedy.commands == ()


@pytest.mark.parametrize("fault", ["blob-cut", "blob-changed", "link-gone", "unsealed"])
def test_a_damaged_release_is_sent_again(patient: Patient, fault: str) -> None:
    patient.lab.fault("lab001", fault)
    cure = patient.cure(patient.playbook)
    assert (cure.remedy.operation, cure.outcome) == ("redeploy", "healed"), cure.why
    assert patient.look().verdict != PROBLEM


def test_without_the_playbook_it_says_what_to_name(patient: Patient) -> None:
    patient.lab.fault("lab001", "link-gone")
    cure = patient.cure()
    assert cure.outcome == "left"
    assert "--playbook" in cure.why
    assert patient.cure(patient.playbook).outcome == "healed"


def test_a_cure_that_does_not_help_is_taken_back(patient: Patient) -> None:
    """The library is gone although its package is there: rights are mended in vain."""
    patient.lab.fault("lab001", "node-root-only")
    patient.lab.fault("lab001", "cdsp-offline")
    try:
        before = patient.tree()
        found = [patient.look()]
        assert ids(found[0])[0] == "fastrpc-node-permission"
        (cure,) = plan_cures([patient.host], found)
        apply_cures([cure], Round(), lambda _: None, runs=patient.runs)
        assert cure.outcome == "undone"
        assert "earlier state (undone: apply udev rules to fastrpc-*" in cure.why
        assert cure.hint.startswith("fleet doctor -v --limit lab001")
        assert changes(before, patient.tree()) == []
        assert patient.look().verdict == PROBLEM
    finally:
        patient.lab.heal("lab001", "cdsp-offline")
        patient.lab.heal("lab001", "node-root-only")


def test_the_release_before_is_taken_where_the_playbook_is_not_there(patient: Patient) -> None:
    other = replace(patient.playbook, health_timeout=77.0)
    operation = Operation(
        other,
        [patient.host],
        lambda _: None,
        options=DeployOptions(run="never"),
        resources=Resources(cached_store(), patient.runs),
    )
    assert operation.deploy()[0].fine
    patient.lab.fault("lab001", "link-gone")
    cure = patient.cure()
    assert (cure.remedy.operation, cure.outcome) == ("rollback", "healed"), cure.why
    assert patient.look().verdict != PROBLEM


def test_the_release_before_is_no_way_out_if_it_shares_the_damaged_file(patient: Patient) -> None:
    patient.lab.fault("lab001", "blob-changed")
    cure = patient.cure()
    assert (cure.remedy.operation, cure.outcome) == ("", "left")
    assert "--playbook" in cure.why
    assert "rollback" not in " ".join(fix.command for fix in patient.look().causes[0].fixes)
    assert patient.cure(patient.playbook).outcome == "healed"


def test_what_is_printed_is_what_is_done(patient: Patient) -> None:
    """The fix of the page has the steps of `--fix`, its way back undoes them, its check holds."""
    patient.lab.fault("lab001", "node-root-only")
    try:
        found = patient.look()
        (fix,) = found.causes[0].fixes
        assert fix.command == "fleet doctor --fix -l lab001"
        assert fix.undo == "fleet undo last -l lab001"
        assert found.causes[0].verify == "fleet doctor -l lab001"
        (cure,) = plan_cures([patient.host], [found])
        assert cure.remedy.steps == fix.steps
        apply_cures([cure], Round(), lambda _: None, runs=patient.runs)
        assert cure.outcome == "healed", cure.why
    finally:
        patient.lab.heal("lab001", "node-root-only")


def test_steps_that_were_not_shown_are_not_taken(patient: Patient) -> None:
    patient.lab.fault("lab001", "node-root-only")
    try:
        (cure,) = plan_cures([patient.host], [patient.look()])
        patient.lab.fault("lab001", "left-group")
        before = patient.tree()
        apply_cures([cure], Round(), lambda _: None, runs=patient.runs)
        assert "changed since fleet showed the steps" in cure.why
        assert changes(before, patient.tree()) == []
    finally:
        patient.lab.heal("lab001", "left-group")
        patient.lab.heal("lab001", "node-root-only")


def test_a_device_is_not_healthy_while_its_last_run_failed_or_a_deploy_would_be_refused(
    patient: Patient, tmp_path: Path
) -> None:
    assert patient.look(patient.playbook).verdict != PROBLEM
    failed = {"lab001": RunFailure("20261120-100000-aaaaaa", "run", "ended with status 1")}
    (found,) = examine([patient.host], lambda _: None, Round(failures=failed))
    assert found.verdict == ADVICE
    assert "ended with status 1" in " ".join(check.text for check in found.checks)
    newer = tmp_path / "newer"
    shutil.copytree(patient.playbook.bundle, newer)
    versions = newer / "tool-versions.yaml"
    versions.write_text(re.sub(r"2[.]\d+[.]\d+[.]\d+", "2.99.0.290101000000", versions.read_text()))
    refused = patient.look(replace(patient.playbook, bundle=newer))
    assert refused.verdict == PROBLEM
    assert refused.causes[0].cause.id.startswith("preflight-"), ids(refused)
    assert "tool-versions.yaml was damaged or edited" in refused.causes[0].title


def test_dry_run_changes_nothing(patient: Patient) -> None:
    patient.lab.fault("lab001", "left-group")
    try:
        before = patient.tree()
        (cure,) = plan_cures([patient.host], [patient.look()])
        assert cure.outcome == "planned"
        assert any("usermod" in one for one in cure.remedy.commands)
        assert changes(before, patient.tree()) == []
    finally:
        patient.lab.heal("lab001", "left-group")


def test_without_sudo_nothing_is_begun(patient: Patient) -> None:
    patient.lab.fault("lab001", "left-group")
    patient.lab.fault("lab001", "no-sudo")
    try:
        before = patient.tree()
        cure = patient.cure()
        assert cure.outcome in {"undone", "failed"}
        assert "sudo" in cure.why
        assert changes(before, patient.tree()) == []
    finally:
        patient.lab.heal("lab001", "no-sudo")
        patient.lab.heal("lab001", "left-group")


def test_what_only_a_person_can_do_is_left(patient: Patient) -> None:
    patient.lab.fault("lab001", "cdsp-offline")
    try:
        cure = patient.cure()
        assert (cure.remedy.operation, cure.outcome) == ("", "left")
        assert "fixes above" in cure.why
    finally:
        patient.lab.heal("lab001", "cdsp-offline")
