"""`fleet doctor` as people and programs call it: pages, JSON, exit codes, archives."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from fleet.config.schema import schema
from fleet.doctor.redaction import Redactor
from tests import warm
from tests.transport.sshd import free_port

from .conftest import Ward

ROOT = Path(__file__).parents[2]
NODEV = ROOT / "tests" / "triage" / "data" / "qairt" / "arm64_b1_cdsprpc_nodev.log"
CHECK = Draft202012Validator(schema("doctor"))
Run = Callable[..., subprocess.CompletedProcess[str]]

PARTS = ("facts", "probe", "nodes", "packages", "remoteproc", "firmware", "mounts")


def fleet(*argv: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    return warm.fleet(
        "doctor", *argv, stdin=stdin, cwd=ROOT, env={**os.environ, "NO_COLOR": "1", **env}
    )


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    CHECK.validate(found)
    return found


def test_no_slot_of_a_log_is_shown_where_there_is_no_log() -> None:
    for done in (fleet("--explain", "-22"), fleet("--explain", "-22", "--json"),
                 fleet("--list"), fleet("--list", "--json")):  # fmt: skip
        assert "firmware-refused" in done.stdout
        assert not re.search(r"\{[a-z_]+(:[^{}\"]*)?\}", done.stdout), done.stdout


def test_the_command_that_tells_twins_apart_reads_no_folder_of_the_system(tmp_path: Path) -> None:
    """Without $RELEASE, `ls "$RELEASE"/lib` would list /lib."""
    log = tmp_path / "log.txt"
    line = "dynamic loading failed for file:///libx_skel.so on domain 3 (dlerror undefined PLT"
    log.write_text(f"remote_handle_open_domain: {line} symbol x_acquire)\n")
    shown = fleet("--log", str(log)).stdout
    assert 'check: ls -l "${RELEASE:?set RELEASE to' in shown
    assert "the number in the name" in shown
    (target,) = document(fleet("--log", str(log), "--json"))["targets"]
    (first, *_) = target["causes"]
    commands = {twin["cause"]: twin["command"] for twin in first["tell_apart"]}
    assert "${RELEASE:?set RELEASE to" in commands["stub-skel-version-mismatch"]


def test_a_page_for_a_tired_engineer() -> None:
    done = fleet("--log", str(NODEV))
    assert done.returncode == 1
    text = done.stdout
    order = ["problem", "  cause", "  seen", "  fix", "  check", "  next"]
    places = [text.index(word) for word in order]
    assert places == sorted(places)
    assert "line " in text
    assert "\x1b" not in text
    assert done.stderr == ""


def test_json_of_a_log() -> None:
    found = document(fleet("--log", str(NODEV), "--json"))
    (target,) = found["targets"]
    assert target["target"] == str(NODEV)
    assert target["verdict"] == "problem"
    assert len(target["causes"]) >= 2
    assert {"id", "confidence", "layer", "evidence", "fix"} <= set(target["causes"][0])
    assert target["causes"][0]["tell_apart"]


def test_standard_input_and_several_logs(tmp_path: Path) -> None:
    good = ROOT / "tests" / "triage" / "data" / "healthy" / "genie-t2t-run.log"
    done = fleet(
        "--log", str(good), "--log", "-", "--json", stdin="aarch64-oe-linux: Exec format error\n"
    )
    assert [one["verdict"] for one in document(done)["targets"]] == ["healthy", "problem"]
    assert done.returncode == 1
    fine = fleet("--log", str(good))
    assert fine.returncode == 0
    assert "nothing wrong seen" in fine.stdout
    assert "healthy" not in fine.stdout.replace(str(good), "")


def test_a_log_of_which_nothing_is_known_is_not_recognised() -> None:
    done = fleet("--log", "-", stdin="could not load model: error -42\n")
    assert "not recognised" in done.stdout
    assert "healthy" not in done.stdout
    assert done.returncode == 5
    found = document(fleet("--log", "-", "--json", stdin="could not load model: error -42\n"))
    assert [one["verdict"] for one in found["targets"]] == ["not-recognised"]
    known = fleet("--log", "-", "--log", str(NODEV), stdin="could not load model: error -42\n")
    assert known.returncode == 1


def test_the_platform_turns_a_tie() -> None:
    log = "qnn_open failed, 0x80000406\n"
    windows = document(fleet("--log", "-", "--json", "--platform", "windows", stdin=log))
    linux = document(fleet("--log", "-", "--json", "--platform", "linux", stdin=log))
    assert linux["targets"][0]["causes"][0]["id"] == "skel-not-found"
    fixes = windows["targets"][0]["causes"][0]["fix"]
    assert {one["platform"] for one in fixes} <= {"windows", "any"}


def test_escapes_of_a_log_do_not_reach_the_terminal() -> None:
    log = "\x1b]0;owned\x07\x1b[31mStub lib id mismatch: expected (v2.1), detected (v2.2)\x1b[0m\n"
    for argv in (("--log", "-"), ("--log", "-", "--json")):
        done = fleet(*argv, stdin=log)
        assert "\x1b" not in done.stdout
        assert "\\u001b" not in done.stdout
        assert "owned" not in done.stdout


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("14001", "QNN_DEVICE_ERROR_INVALID_CONFIG"),
        ("0x36b1", "QNN_DEVICE_ERROR_INVALID_CONFIG"),
        ("1008", "QNN_COMMON_ERROR_INCOMPATIBLE_BINARIES"),
        ("0x80000406", "AEE_EUNABLETOLOAD"),
        ("-2147482618", "AEE_EUNABLETOLOAD"),
        ("AEE_EUNABLETOLOAD", "AEE_EUNABLETOLOAD"),
        ("-8", "GENIE_STATUS_ERROR_JSON_SCHEMA"),
        ("0x72", "AEE_ECONNREFUSED"),
        ("QNN_CONTEXT_ERROR_CREATE_FROM_BINARY", "QNN_CONTEXT_ERROR_CREATE_FROM_BINARY"),
    ],
)
def test_a_code_is_explained(code: str, name: str) -> None:
    done = fleet("--explain", code)
    assert done.returncode == 0
    assert name in done.stdout
    found = json.loads(fleet("--explain", code, "--json").stdout)
    assert name in {one for meaning in found["meanings"] for one in meaning["names"]}


def test_14001_has_many_causes_and_nonsense_has_none() -> None:
    found = json.loads(fleet("--explain", "14001", "--json").stdout)
    assert len(found["causes"]) >= 10
    assert found["causes"][0]["id"] == "skel-not-found"
    assert fleet("--explain", "\x1b[31mnonsense").returncode == 3


def test_the_list() -> None:
    found = json.loads(fleet("--list", "--json").stdout)
    assert {"nodes", "libcdsprpc", "runtime", "bundle"} <= {one["id"] for one in found["checks"]}
    assert all(one["about"] for one in found["checks"])
    assert len(found["causes"]) >= 70


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ((), "does not know what to examine"),
        (("--list", "--explain", "1"), "cannot be combined"),
        (("--log", "/nowhere/x.log"), "/nowhere/x.log cannot be read: No such file"),
        (("--log", "-", "--platform", "amiga"), "'amiga' is not a platform"),
        (
            ("-i", "inventories/lab.yaml", "--only", "nonsense"),
            "'nonsense' is not a check or layer",
        ),
        (("-i", "inventories/lab.yaml", "--folder", "a\nb"), "line break"),
    ],
)
def test_bad_input_is_one_error(argv: tuple[str, ...], said: str) -> None:
    done = fleet(*argv)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("error:") == 1


@pytest.mark.parametrize(
    ("project", "said"),
    [(None, "this folder is not in a fleet project"), ("parallel: 4\n", "names no inventory")],
)
def test_what_no_project_supplies_is_said(project: str | None, said: str, tmp_path: Path) -> None:
    if project is not None:
        (tmp_path / "fleet.yaml").write_text(project)
    done = warm.fleet("doctor", cwd=tmp_path)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())


def test_a_device_that_is_not_reached_is_exit_code_3(tmp_path: Path) -> None:
    inventory = tmp_path / "i.yaml"
    inventory.write_text(
        f"all:\n  hosts:\n    evk: {{host: 127.0.0.1, port: {free_port()}, user: x}}\n"
    )
    done = fleet("-i", str(inventory), "--json")
    assert done.returncode == 3
    (target,) = document(done)["targets"]
    assert target["verdict"] == "could-not-check"
    assert target["causes"][0]["id"] == "device-unreachable"


@pytest.mark.root
@pytest.mark.qairt
def test_devices_through_the_command_line(ward: Ward, tmp_path: Path) -> None:
    inventory = str(ward.lab.inventory)
    both = fleet("-i", inventory, "--json")
    assert both.returncode == 3, both.stdout
    verdicts = [one["verdict"] for one in document(both)["targets"]]
    assert verdicts == ["healthy", "could-not-check"], "nothing is deployed on lab002"
    assert fleet("-i", inventory, "-l", "lab001").returncode == 0
    with ward.broken("old-skel-in-system"):
        advice = ("-i", inventory, "-l", "lab001", "--folder", "npu")
        assert fleet(*advice).returncode == 0
        assert fleet(*advice, "--strict").returncode == 2
    archive = tmp_path / "out.tar.gz"
    with ward.broken("node-root-only"):
        page = fleet("-i", inventory, "--bundle", str(archive))
        plan = fleet("-i", inventory, "-l", "lab001", "--fix", "--dry-run", "--json")
        shown = fleet("-i", inventory, "-l", "lab001", "--fix", "--dry-run")
        asked = fleet("-i", inventory, "-l", "lab001", "--fix")
    assert page.returncode == 1
    assert "✗ nodes" in page.stdout
    assert "2 targets: 1 problem, 1 could-not-check" in page.stdout
    assert "+ apply udev rules to fastrpc-*" in page.stdout
    assert "usermod" not in page.stdout, "the user is in the group already"
    (fix,) = document(plan)["fixes"]
    assert fix["outcome"] == "planned"
    assert f"fleet doctor --fix -l lab001 -i {inventory}" in page.stdout
    assert "Let fleet do it" not in shown.stdout, "it leads in a circle"
    next_ = f"to apply these steps: fleet doctor --fix -i {inventory} -l lab001"
    assert next_ in shown.stdout
    assert asked.returncode == 2
    assert "cannot ask before the repair: standard input is not a terminal" in asked.stderr
    with tarfile.open(archive) as packed:
        names = packed.getnames()
        text = "".join(
            packed.extractfile(name).read().decode()  # type: ignore[union-attr]
            for name in names
        )
    assert {"fleet-doctor/host.json", "fleet-doctor/device-1.json"} <= set(names)
    assert {f"fleet-doctor/device-1/raw/{part}.txt" for part in PARTS} <= set(names)
    for secret in ("127.0.0.1", "lab001", "/home/ubuntu", "SHA256:AAAA"):
        assert secret not in text
    assert "fastrpc-node-permission" in text


@pytest.mark.parametrize(
    "text",
    [
        "ssh ubuntu@10.1.2.3",
        "password=hunter2",
        "token: ghp_abcdefghijklmnop1234",
        "/home/alice/models",
        "mail bob@example.org",
        "de:ad:be:ef:00:01",
        "fe80::1ff:fe23:4567:890a",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----",
        "SHA256:UGqsq79FxQOzJS699i+kc9WjHqaDi0e192c+QiJ79mA",
    ],
)
def test_what_is_packed_is_redacted(text: str) -> None:
    plain = Redactor(["evk-07"]).text(f"before {text} after")
    for secret in ("10.1.2.3", "hunter2", "ghp_", "alice", "bob", "de:ad", "4567", "abc", "UGqsq"):
        assert secret not in plain
    assert plain.startswith("before")
    assert Redactor(["evk-07"]).text("evk-07 evk-071").startswith("device-1 evk-")
