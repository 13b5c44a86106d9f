"""Every fault of a lab board is named, in the right layer, from what the real tools show."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec import structs

from fleet.config.schema import schema
from fleet.doctor.bundle import doctor_members
from fleet.doctor.examine import Round, _of_checks, diagnose
from fleet.engine.session import Session
from fleet.lab.debs import LIB
from fleet.model.diagnosis import ADVICE, BAD, HEALTHY, PROBLEM, UNCHECKED, Check
from fleet.model.plain import to_plain
from fleet.triage.knowledge import knowledge
from fleet.triage.ranking import rank

from .conftest import Ward, ids

pytestmark = [pytest.mark.root, pytest.mark.qairt]

# Fault → cause and layer of the cause.
FAULTS = {
    "no-node": ("fastrpc-node-missing", "nodes"),
    "node-root-only": ("fastrpc-node-permission", "nodes"),
    "left-group": ("fastrpc-node-permission", "nodes"),
    "no-libcdsprpc": ("fastrpc-userspace-missing", "library"),
    "soname-only": ("fastrpc-userspace-missing", "library"),
    "old-libcdsprpc": ("vendor-fastrpc-too-old", "library"),
    "cdsp-offline": ("cdsp-not-running", "dsp"),
    "no-firmware": ("firmware-missing", "dsp"),
    "wrong-soc": ("soc-unknown", "runtime"),
    "full-disk": ("disk-full", "os"),
    "read-only": ("storage-read-only", "os"),
    "noexec": ("noexec", "os"),
    "stub-missing": ("stub-not-found", "runtime"),
    "skel-missing": ("skel-not-found", "runtime"),
    "stub-other-build": ("stub-skel-version-mismatch", "runtime"),
    "skel-other-build": ("stub-skel-version-mismatch", "runtime"),
    "skel-other-arch": ("skel-not-found", "runtime"),
    "library-other-machine": ("abi-mismatch", "runtime"),
    "library-cut": ("library-damaged", "runtime"),
    "separator": ("adsp-path-separator", "runtime"),
    "dsp-path": ("dsp-library-path-override", "runtime"),
    "context-empty": ("context-binary-corrupt", "bundle"),
    "context-zeroed": ("context-binary-corrupt", "bundle"),
    "config-syntax": ("genie-config", "bundle"),
    "config-schema": ("genie-config", "bundle"),
    "tokenizer-missing": ("bundle-incomplete", "bundle"),
    "blob-cut": ("context-binary-corrupt", "bundle"),
    "blob-changed": ("context-binary-corrupt", "bundle"),
    "link-gone": ("release-damaged", "runtime"),
    "unsealed": ("release-damaged", "runtime"),
}
CHECK = Draft202012Validator(schema("doctor"))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named(ward: Ward, fault: str) -> None:
    cause, layer = FAULTS[fault]
    with ward.broken(fault):
        found = ward.look(folders=("npu",))
    assert found.verdict == PROBLEM
    assert ids(found)[0] == cause, [to_plain(one) for one in found.causes]
    first = found.causes[0]
    assert first.cause.layer == layer
    assert first.confidence > 0.6
    assert first.evidence[0].text
    assert first.fixes
    assert found.emulated
    assert found.round_trips <= 4, "one look, and the plan of the repair"
    session = next(one for one in found.checks if one.id == "session")
    assert session.status == "unknown"
    CHECK.validate({"schema": 1, "targets": [json.loads(json.dumps(to_plain(found)))]})
    archived = json.loads(doctor_members([found])["fleet-doctor/device-1.json"])
    assert archived["causes"][0]["id"] == cause
    assert of_archive(archived)[0] == cause, "what is replaced is not what the cause needs"


def of_archive(archived: dict[str, Any]) -> list[str]:
    """The causes that the checks of an archive lead to, without the ones that it names itself."""
    fields = [field.name for field in structs.fields(Check)]
    checks = [Check(**{name: row[name] for name in fields}) for row in archived["checks"]]
    known = {key: word for check in checks for key, word in check.facts.items()}
    heard = _of_checks(checks, failing=any(check.status == BAD for check in checks))
    possible = [one for one in heard if one.fact or not one.cause.is_refuted(known)]
    return [one.cause.id for one in rank(possible, "linux", known=knowledge().causes)]


def test_a_board_at_95_degrees_with_half_its_clocks_is_not_simply_healthy(ward: Ward) -> None:
    with ward.broken("hot"):
        found = ward.look(folders=("npu",))
    assert found.verdict == ADVICE, [to_plain(cause) for cause in found.causes]
    assert ids(found) == ["thermal-throttling"]
    (check,) = [check for check in found.checks if check.id == "heat"]
    assert check.text.endswith("95 °C: from 90 °C the chip lowers its clocks; policy0 runs at 50%")


def test_a_healthy_board_has_no_finding(ward: Ward) -> None:
    found = ward.look(folders=("npu",))
    assert found.verdict == HEALTHY, [to_plain(one) for one in found.checks]
    assert found.causes == ()
    assert found.round_trips == 2
    assert "device and context created" in next(
        one.text for one in found.checks if one.id == "session" and one.status == "ok"
    )


def test_a_board_without_anything_is_told_so(ward: Ward) -> None:
    found = ward.look("lab002")
    assert found.verdict == UNCHECKED
    assert found.round_trips == 1
    assert any("nothing is deployed" in one.text for one in found.checks)


def test_qnn_of_the_system_is_advice(ward: Ward) -> None:
    with ward.broken("old-skel-in-system"):
        found = ward.look(folders=("npu",))
    assert found.verdict == "advice"
    assert ids(found)[0] == "mixed-install"


def test_group_of_the_database_and_not_of_the_session(ward: Ward) -> None:
    """A login that is older than the membership: the node refuses, and only a new login helps."""
    host = ward.host()
    with ward.broken("left-group"):
        session = Session(host, lambda _: None)
        session.open()
        ward.lab.exec("lab001", ["usermod", "-aG", "fastrpc", "ubuntu"])
        found = diagnose(session, Round())
        session.close()
    assert ids(found)[0] == "group-not-effective"
    assert found.causes[0].cause.layer == "user"
    assert ward.look().verdict == HEALTHY


def test_a_file_in_the_place_of_a_link(ward: Ward) -> None:
    """Somebody copied another library over that of a release."""
    link = "$(readlink -f /home/ubuntu/fleet/current/tiny-genie)/lib/libQnnSystem.so"
    change = f'readlink "{link}" > /run/was; cp --remove-destination {LIB}/libc.so.6 "{link}"'
    ward.lab.exec("lab001", ["sh", "-c", change])
    found = ward.look()
    ward.lab.exec("lab001", ["sh", "-c", f'ln -sf "$(cat /run/was)" "{link}"'])
    assert found.verdict == PROBLEM
    assert ids(found)[0] == "release-damaged"
    check = next(one for one in found.checks if one.id == "runtime")
    assert "replaced: lib/libQnnSystem.so" in check.output
    assert ward.look().verdict == HEALTHY


def test_only_one_check(ward: Ward) -> None:
    with ward.broken("no-node"):
        found = ward.look(only=("disk",))
        nodes = ward.look(only=("nodes",))
    assert {one.id for one in found.checks} == {"disk"}
    assert found.verdict == HEALTHY
    assert to_plain(found)["verdict"] == "nothing-wrong-seen"
    assert {one.id for one in nodes.checks} == {"nodes", "heap"}
    assert nodes.verdict == PROBLEM


def test_verify_hashes_what_looks_old(ward: Ward) -> None:
    """A blob that was changed with its time kept: only the hash tells."""
    script = (
        'b=$(readlink -f "$(find /home/ubuntu/fleet/releases -name "*.bin" | head -n 1)"); '
        'touch -r "$b" /run/stamp; cp -a "$b" /run/keep; chmod u+w "$b"; '
        'printf x | dd of="$b" bs=1 seek=42000 conv=notrunc; touch -r /run/stamp "$b"'
    )
    assert ward.lab.exec("lab001", ["sh", "-c", script]).returncode == 0
    try:
        quick, thorough = ward.look(session=False), ward.look(session=False, verify=True)
    finally:
        back = 'b=$(readlink -f "$(find /home/ubuntu/fleet/releases -name "*.bin" | head -n 1)"); '
        ward.lab.exec("lab001", ["sh", "-c", back + 'cp -a /run/keep "$b"; chmod a-w "$b"'])
    assert quick.verdict == UNCHECKED, "no session was opened"
    assert ids(thorough)[0] == "context-binary-corrupt"


def test_a_look_tells_the_causes_of_a_log_apart(ward: Ward) -> None:
    """The same log has two causes; the board with the fault shows which."""
    log = "cannot open /dev/fastrpc-cdsp: errno 13 (Permission denied)\n"
    fine = ward.look(log=log, only=("nodes",))
    assert fine.verdict != PROBLEM, "the node opens now"
    with ward.broken("no-node"):
        gone = ward.look(log=log, only=("nodes",))
    assert ids(gone)[0] == "fastrpc-node-missing"
