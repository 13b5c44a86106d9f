"""Bad input through the real command line: one clear error each, exit code not 0, nothing lost.

The board is a namespace board of the lab: a real sshd, a real second user, real disks.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.lab import Lab
from fleet.lab.namespace import can_unshare
from tests import warm
from tests.transport.sshd import free_port, make_key

ROOT = Path(__file__).parents[2]
PLAYBOOK = ROOT / "playbooks" / "tiny-genie.yaml"
pytestmark = pytest.mark.qairt


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    why = can_unshare()
    if why:
        pytest.skip(f"no namespace boards here: {why}")
    with Lab.up(tmp_path_factory.mktemp("lab"), count=2, kind="namespace", base_port=0) as one:
        yield one


class Cli:
    """`fleet` as a process, with a store of runtimes that is filled already."""

    def __init__(self, lab: Lab, folder: Path, home: Path) -> None:
        self.lab = lab
        self.folder = folder
        self.env = {**os.environ, "FLEET_HOME": str(home), "HOME": str(folder), "NO_COLOR": "1"}

    def __call__(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        return warm.fleet(*argv, env={**self.env, **env}, cwd=self.folder)

    def inventory(self, text: str = "", **changes: str) -> str:
        values = {
            "ssh_config": str(self.lab.folder.root / "ssh_config"),
            "known_hosts": str(self.lab.folder.known_hosts),
            **changes,
        }
        lines = "".join(f"    {key}: {value}\n" for key, value in values.items() if value)
        path = self.folder / "inventory.yaml"
        hosts = text or "    lab001:\n"
        path.write_text(f"all:\n  vars:\n{lines}  hosts:\n{hosts}")
        return str(path)

    def playbook(self, **changes: object) -> str:
        import yaml

        body = yaml.safe_load(PLAYBOOK.read_text())
        body["bundle"] = str(ROOT / "assets" / "tiny-genie")
        body["run"] = {**body["run"], "warmups": 0, "repeats": 1}
        body.update(changes)
        path = self.folder / "playbook.yaml"
        path.write_text(yaml.safe_dump(body))
        return str(path)

    def tree(self) -> str:
        done = self.lab.exec("lab001", ["find", "/home/ubuntu", "-printf", "%p %s %l\n"])
        return done.stdout


@pytest.fixture
def cli(lab: Lab, tmp_path: Path, qairt_store: object) -> Cli:
    home = tmp_path / "home"
    home.mkdir()
    (home / "runtimes").symlink_to(qairt_store.root)  # type: ignore[attr-defined]
    return Cli(lab, tmp_path, home)


def errors(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith("error:")]


def check_one_error(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert len(errors(done)) == 1, done.stderr
    flat = " ".join(done.stderr.split())
    for word in words:
        assert word in flat, done.stderr
    assert "try:" in done.stderr, done.stderr


def test_malformed_yaml(cli: Cli) -> None:
    path = cli.folder / "broken.yaml"
    path.write_text("all:\n  hosts:\n    evk: [\n")
    before = cli.tree()
    check_one_error(cli("deploy", "-i", str(path), cli.playbook()), 2, "broken.yaml:")
    playbook = cli.folder / "playbook.yaml"
    playbook.write_text("name: x\n\tbundle: y\n")
    check_one_error(
        cli("deploy", "-i", cli.inventory(), str(playbook)), 2, "playbook.yaml:2", "tab"
    )
    assert cli.tree() == before


def test_unknown_key(cli: Cli) -> None:
    path = cli.inventory(prot="22")
    check_one_error(cli("facts", "-i", path), 2, "inventory.yaml:5:5", "prot", "port")
    playbook = cli.playbook(helth={"timeout": "5s"})
    check_one_error(cli("plan", "-i", cli.inventory(), playbook), 2, "helth", "health")


def test_missing_bundle(cli: Cli) -> None:
    playbook = cli.playbook(bundle=str(cli.folder / "no-such-bundle"))
    check_one_error(cli("deploy", "-i", cli.inventory(), playbook), 2, "no-such-bundle")


def test_missing_files(cli: Cli) -> None:
    check_one_error(cli("facts", "-i", str(cli.folder / "nope.yaml")), 2, "nope.yaml")
    check_one_error(
        cli("plan", "-i", cli.inventory(), str(cli.folder / "none.yaml")), 2, "none.yaml"
    )


def test_unreachable_host(cli: Cli) -> None:
    host = f"    gone: {{host: 127.0.0.1, port: {free_port()}, connect_timeout: 5s}}\n"
    path = cli.inventory(host, ssh_config="")
    check_one_error(cli("deploy", "-i", path, cli.playbook()), 3, "gone", "127.0.0.1")


def test_a_port_that_is_no_ssh_server(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as web:
        port = web.getsockname()[1]

        def answer() -> None:
            with contextlib.suppress(OSError):
                peer, _ = web.accept()
                with peer:
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        host = f"    web: {{host: 127.0.0.1, port: {port}, connect_timeout: 10s}}\n"
        done = cli("facts", "-i", cli.inventory(host, ssh_config=""))
        thread.join()
    check_one_error(done, 3, "web", "not an SSH server")


def test_unreachable_is_said_for_its_host_and_the_other_one_is_done(cli: Cli) -> None:
    hosts = f"    gone: {{host: 127.0.0.1, port: {free_port()}}}\n    lab001:\n"
    done = cli("facts", "-i", cli.inventory(hosts), "--json")
    assert done.returncode == 3
    found = {one["host"]: one for one in json.loads(done.stdout)}
    assert found["gone"]["outcome"] == "unreachable"
    assert found["lab001"]["outcome"] == "ok"
    assert found["lab001"]["round_trips"] == 1
    assert found["lab001"]["facts"]["soc"]["soc_model"] == 77
    assert found["lab001"]["facts"]["emulated"] is True


def test_unknown_host_key_then_trust(cli: Cli) -> None:
    own = cli.folder / "own_known_hosts"
    path = cli.inventory(known_hosts=str(own))
    before = cli.tree()
    check_one_error(cli("deploy", "-i", path, cli.playbook()), 3, "not trusted", "trust lab001")
    assert cli.tree() == before
    done = cli("trust", "lab001", "-i", path, "--yes")
    assert done.returncode == 0, done.stderr
    assert "SHA256:" in done.stdout
    assert cli("facts", "-i", path).returncode == 0


def test_wrong_host_key(cli: Cli) -> None:
    other = make_key(cli.folder / "other")
    kind, key = other.with_suffix(".pub").read_text().split()[:2]
    own = cli.folder / "own_known_hosts"
    own.write_text(f"[127.0.0.1]:{cli.lab.board('lab001').port} {kind} {key}\n")
    path = cli.inventory(known_hosts=str(own))
    before = cli.tree()
    for extra in ([], ["--accept-new"]):
        done = cli("deploy", "-i", path, cli.playbook(), *extra)
        check_one_error(done, 3, "CHANGED", "--reflashed")
        assert done.stderr.count("SHA256:") >= 2
    assert cli.tree() == before
    refused = cli("trust", "lab001", "-i", path, "--yes")
    assert refused.returncode == 2
    assert cli("trust", "lab001", "-i", path, "--yes", "--reflashed").returncode == 0
    assert cli("facts", "-i", path).returncode == 0


def test_reflashed_board(cli: Cli) -> None:
    cli.lab.fault("lab002", "new-host-key")
    try:
        done = cli("facts", "-i", cli.inventory("    lab002:\n"))
        check_one_error(done, 3, "CHANGED", "re-flashed")
    finally:
        cli.lab.power_cycle("lab002")


def test_wrong_password(cli: Cli) -> None:
    board = cli.lab.board("lab001")
    stranger = make_key(cli.folder / "stranger")
    host = f"    lab001: {{host: 127.0.0.1, port: {board.port}, user: ubuntu}}\n"
    path = cli.inventory(
        host, ssh_config="", identity_file=str(stranger), password="env:BOARD_PASSWORD"
    )
    wrong = cli("deploy", "-i", path, cli.playbook(), BOARD_PASSWORD="canary-not-it")
    check_one_error(wrong, 3, "refuses the login")
    assert "canary" not in wrong.stderr + wrong.stdout
    right = cli("facts", "-i", path, BOARD_PASSWORD=cli.lab.folder.password)
    assert right.returncode == 0, right.stderr
    assert cli.lab.folder.password not in right.stdout + right.stderr
    check_one_error(cli("facts", "-i", path), 2, "BOARD_PASSWORD for the password is not set")


def test_full_disk(cli: Cli) -> None:
    cli.lab.fault("lab001", "small-disk")
    try:
        done = cli("deploy", "-i", cli.inventory(), cli.playbook())
        check_one_error(done, 1, "disk", "need")
        assert "store" not in cli.tree()
    finally:
        cli.lab.heal("lab001", "small-disk")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("read-only", ("not writable",)),
        ("no-python3", ("python3",)),
        ("wrong-soc", ("unknown", "soc:")),
    ],
)
def test_faults_that_the_preflight_sees(cli: Cli, fault: str, words: tuple[str, ...]) -> None:
    before = cli.tree()
    cli.lab.fault("lab001", fault)
    try:
        check_one_error(cli("deploy", "-i", cli.inventory(), cli.playbook()), 1, *words)
    finally:
        cli.lab.heal("lab001", fault)
    assert "/fleet/store" not in cli.tree()
    assert before


def test_an_override_makes_an_unknown_soc_usable(cli: Cli) -> None:
    cli.lab.fault("lab002", "wrong-soc")
    try:
        path = cli.inventory("    lab002: {soc: QCS9075}\n")
        done = cli("plan", "-i", path, cli.playbook())
        assert done.returncode == 0, done.stderr
        assert "REFUSED" not in done.stdout
    finally:
        cli.lab.heal("lab002", "wrong-soc")


def test_the_whole_job_as_json(cli: Cli) -> None:
    done = cli("deploy", "-i", cli.inventory(), cli.playbook(), "--json", "--offline")
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = {event["event"] for event in events}
    assert {"StepStarted", "Progress", "DeviceDone", "RunDone"} <= kinds
    (end,) = [event for event in events if event["event"] == "DeviceDone"]
    assert (end["outcome"], end["emulated"]) == ("changed", True)
    again = cli("deploy", "-i", cli.inventory(), cli.playbook(), "--json")
    (end,) = [e for e in map(json.loads, again.stdout.splitlines()) if e["event"] == "DeviceDone"]
    assert (end["outcome"], end["bytes_sent"]) == ("unchanged", 0)
    assert end["round_trips"] <= 3
    shown = json.loads(cli("status", "-i", cli.inventory(), "--json").stdout)
    assert shown[0]["deployed"][0]["state"] == "installed"
    run = cli("run", "-i", cli.inventory(), cli.playbook(), "--prompt", "What is TTFT?", "--stream")
    assert run.returncode == 0, run.stderr
    assert "time to first token" in " ".join(run.stderr.split())
    records = json.loads(cli("profiles", "show", "last", "--json").stdout)
    assert records[0]["metrics"]["decode_tps"] > 0
    assert cli("profiles", "list").stdout.count("tiny-genie") == 2


def test_dry_run_is_plan(cli: Cli) -> None:
    before = cli.tree()
    plan = cli("deploy", "--dry-run", "-i", cli.inventory("    lab002:\n"), cli.playbook())
    assert plan.returncode == 0, plan.stderr
    assert "+ send " in plan.stdout
    assert cli.tree() == before


def test_limit_that_matches_nothing(cli: Cli) -> None:
    check_one_error(cli("facts", "-i", cli.inventory(), "--limit", "lab01"), 2, "lab001")
