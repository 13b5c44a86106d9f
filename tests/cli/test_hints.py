"""Commands in hints: each is one that the command line takes, with what was given."""

from __future__ import annotations

import ast
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fleet.cli.main  # noqa: F401 - it says which commands there are
from fleet.cli.doctor_devices import _loaded
from fleet.cli.hints import commands_in, completed
from fleet.cli.serve import _advise_tunnel
from fleet.cli.verify import _write
from fleet.engine.pool import DeviceResult
from fleet.lab.folder import make_key
from fleet.lab.namespace import can_unshare
from fleet.model.errors import FleetError
from fleet.model.inventory import Host
from tests import hinting
from tests.engine.rollout.boards import yard
from tests.hinting import parsed
from tests.profiles.records import record
from tests.transport.sshd import Sshd, free_port, running

ROOT = Path(__file__).parents[2]
NAMES = {"last", "all"}  # arguments that look like prose
OPTIONS = {"kind", "only", "phone_kind", "folder", "save", "profile"}


def words_of(params: dict[str, object]) -> Iterator[str]:
    """What could be prose that the parser took for an argument."""
    for name, value in params.items():
        if name in OPTIONS:
            continue
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, str | Path) and str(item).isalpha() and str(item).islower():
                yield str(item)


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every string of a module but its docstrings; `7` for what is put in."""
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
             for part in ast.walk(node) if part is not node}  # fmt: skip
    inner |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in inner:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            yield (
                node.lineno,
                "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "7"
                    for part in node.values
                ),
            )


def test_a_hint_that_cannot_be_typed_is_found_in_any_test() -> None:
    hinting.wrong()
    completed("fleet facts --no-such-option")
    (said,) = hinting.wrong()
    assert "no-such-option" in said
    completed("fleet facts -i evks.yaml")
    assert not hinting.wrong()


def test_every_command_that_is_written_down_can_be_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Help texts, too; so what cannot be parsed is prose that looks like a command."""
    monkeypatch.setattr(sys, "argv", ["fleet"])
    wrong, count = [], 0
    for path in sorted((ROOT / "fleet").rglob("*.py")):
        for line, text in texts(ast.parse(path.read_text("utf-8"))):
            for command in commands_in(completed(text)):
                count += 1
                try:
                    prose = set(words_of(parsed(command))) - NAMES
                    if prose:
                        wrong.append(f"{path.relative_to(ROOT)}:{line}: {command}: {prose}")
                except Exception as error:  # noqa: BLE001 - of the parser, of many kinds
                    wrong.append(f"{path.relative_to(ROOT)}:{line}: {command}: {error}")
    assert count > 100
    assert not wrong, "\n".join(wrong)


class Shell:
    """A person who types, and pastes what is printed."""

    def __init__(self, folder: Path, **env: str) -> None:
        self.folder = folder
        self.env = {**os.environ, "NO_COLOR": "1", "FLEET_HOME": str(folder / "home"), **env}
        (folder / "fleet").write_text(f'#!/bin/sh\nexec {sys.executable} -m fleet "$@"\n')
        (folder / "fleet").chmod(0o755)
        self.env["PATH"] = f"{folder}:{self.env['PATH']}"
        self.env["PYTHONPATH"] = str(ROOT)

    def __call__(self, line: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", line], cwd=self.folder, env={**self.env, **env}, capture_output=True,
            input=stdin, text=True, check=False, timeout=120,
        )  # fmt: skip


def hinted(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The commands of every `try:`, `next:` and the like."""
    lines = [*done.stderr.splitlines(), *done.stdout.splitlines()]
    marks = ("try:", "next:", "then:", "to measure again:", "go on with:")
    found = [c for line in lines if any(mark in line for mark in marks) for c in commands_in(line)]
    for command in found:
        parsed(command)
    return found


def inventory(path: Path, server: Sshd, **changes: str) -> None:
    host = server.host()
    keys = {
        "host": "127.0.0.1", "port": host.port, "user": host.user, "soc": "QCS9075",
        "identity_file": host.identity_files[0], "known_hosts": host.known_hosts,
        "base_dir": path.parent / "base", **changes,
    }  # fmt: skip
    lines = [
        "all:",
        "  hosts:",
        "    evk-1:",
        *(f"      {key}: {value}" for key, value in keys.items()),
    ]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running(tmp_path_factory.mktemp("board")) as one:
        yield one


@pytest.mark.parametrize(
    ("typed", "said", "whole"),
    [
        ("deploy p -i i --frozen", "fleet deploy --allow-reboot",
         "fleet deploy --allow-reboot p -i i --frozen"),
        ("deploy p -i i --locked --lock-file L", "fleet deploy --allow-reboot",
         "fleet deploy --allow-reboot p -i i --locked --lock-file L"),
        ("deploy p -i i --frozen --lock-file L", "fleet deploy --locked",
         "fleet deploy --locked p -i i --lock-file L"),
        ("config lock p -i i --lock-file L", "fleet deploy --locked",
         "fleet deploy --locked p -i i --lock-file L"),
        ("config lock p -i i --lock-file L", "fleet deploy", "fleet deploy p -i i"),
        ("deploy p -i i --frozen --lock-file L", "fleet config lock (writes it)",
         "fleet config lock p -i i --lock-file L (writes it)"),
        ("deploy p -i i --locked --lock-file L", "fleet plan -l b1", "fleet plan -l b1 p -i i"),
        ("deploy p -i i --locked --lock-file L", "fleet status", "fleet status -i i"),
        ("facts -i i -l zzz", "fleet config list '/my boards'",
         "fleet config list '/my boards'"),
        ("facts -i i -l zzz", "fleet config list (shows the port)",
         "fleet config list -i i (shows the port)"),
        ("doctor -i i", "fleet doctor | tee x", "fleet doctor -i i | tee x"),
        ("doctor -i i -l '&a'", "fleet facts && echo ok", "fleet facts -i i -l '&a' && echo ok"),
        ("doctor --log x", "fleet config list -i INVENTORY",
         "fleet config list -i INVENTORY"),
        ("doctor --log x", "fleet facts -i INVENTORY -l a", "fleet facts -l a -i INVENTORY"),
        ("doctor -i i", "fleet config list -i INVENTORY", "fleet config list -i i"),
    ],
)  # fmt: skip
def test_what_is_added(monkeypatch: pytest.MonkeyPatch, typed: str, said: str, whole: str) -> None:
    monkeypatch.setattr(sys, "argv", ["fleet", *shlex.split(typed)])
    assert completed(said) == whole


def test_a_tunnel_is_to_one_board_whose_service_is_ready(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = ["fleet", "serve", "start", "my plays/s.yaml", "-i", "i.yaml", "-l", "b*"]
    monkeypatch.setattr(sys, "argv", typed)
    results: list[DeviceResult[Any]] = [
        DeviceResult(Host(name), outcome, error=error)
        for name, outcome, error in (
            ("b1", "failed", FleetError("x")), ("b2", "changed", None), ("b3", "changed", None),
        )
    ]  # fmt: skip
    _advise_tunnel(results)
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "next: fleet serve tunnel --limit b2 'my plays/s.yaml' -i i.yaml"
    _advise_tunnel(results[:1])
    assert capsys.readouterr().err == ""


def test_the_doctor_says_how_to_correct_the_playbook_of_a_repair(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("inventories", "playbooks"):
        (tmp_path / folder).mkdir()
    playbook = tmp_path / "playbooks" / "b.yaml"
    playbook.write_text("name: b\nruntim: bundle\n")
    assert _loaded(tmp_path / "inventories" / "b.yaml", None) is None
    said = capsys.readouterr().err
    assert f"fleet cannot use the playbook for repairs: {playbook}:2:1: unknown key" in said
    assert "\n  try: did you mean 'runtime'?" in said


def test_recorded_outputs_are_named_from_the_folder_of_the_playbook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    outputs = tmp_path / "outputs.npz"
    outputs.write_bytes(b"PK")
    kept = record(artifacts={"outputs.npz": str(outputs)})
    result = DeviceResult[None](Host("b1"), "ok", records=[kept])
    _write([result], None, Path("net.npz"), Path("playbooks"))
    assert "`reference: ../net.npz`" in capsys.readouterr().err
    assert (tmp_path / "net.npz").read_bytes() == b"PK"


def test_a_pattern_that_matches_nothing(server: Sshd, tmp_path: Path) -> None:
    fleet = Shell(tmp_path)
    inventory(tmp_path / "my boards.yaml", server)
    (listed,) = hinted(fleet("fleet facts -i 'my boards.yaml' -l zzz"))
    shown = fleet(listed)
    assert shown.returncode == 0, shown.stderr
    assert "evk-1" in shown.stdout


def test_the_check_of_a_diagnosis_names_the_device(server: Sshd, tmp_path: Path) -> None:
    fleet = Shell(tmp_path)
    inventory(tmp_path / "i.yaml", server)
    text = (tmp_path / "i.yaml").read_text()
    away = text.replace(f"port: {server.host().port}", f"port: {free_port()}")
    (tmp_path / "i.yaml").write_text(away)
    page = fleet("fleet doctor -i i.yaml").stdout
    (check,) = (line for line in page.splitlines() if line.startswith("  check"))
    (facts,) = commands_in(check)
    (tmp_path / "i.yaml").write_text(text)
    checked = fleet(facts)
    assert checked.returncode == 0, checked.stderr
    log = fleet("fleet doctor --log -", stdin="ssh: connect to host a port 22: No route to host\n")
    assert "check  fleet facts --limit DEVICE -i INVENTORY" in log.stdout


def test_an_unknown_host_key_hint_by_hint(server: Sshd, tmp_path: Path) -> None:
    fleet = Shell(tmp_path)
    inventory(tmp_path / "my boards.yaml", server, known_hosts=str(tmp_path / "pins"))
    seen = fleet("fleet reserve --list -i 'my boards.yaml'")
    (trust,) = hinted(seen)
    assert trust == "fleet trust evk-1 -i 'my boards.yaml'"
    (yes,) = hinted(fleet(trust))
    assert yes == "fleet trust evk-1 --yes -i 'my boards.yaml'"
    assert fleet(yes).returncode == 0
    assert fleet("fleet reserve --list -i 'my boards.yaml'").returncode == 0


def test_a_board_that_another_holds(server: Sshd, tmp_path: Path) -> None:
    fleet = Shell(tmp_path)
    inventory(tmp_path / "i.yaml", server)
    assert fleet("fleet reserve evk-1 -i i.yaml", FLEET_OWNER="ann@desk").returncode == 0
    refused = fleet("fleet reserve all -i i.yaml --for 5m")
    who, unlock = hinted(refused)
    as_json = json.loads(fleet("fleet reserve all -i i.yaml --json").stdout)
    assert commands_in(as_json[0]["error"]["hint"]) == [who, unlock]
    assert "ann@desk" in fleet(who).stdout
    assert fleet(unlock).returncode == 0
    assert fleet("fleet reserve all -i i.yaml --for 5m").returncode == 0
    assert fleet("fleet reserve --end all -i i.yaml").returncode == 0


def test_a_wrong_key_names_the_login_by_hand(server: Sshd, tmp_path: Path) -> None:
    fleet = Shell(tmp_path)
    make_key(tmp_path / "other key")
    inventory(tmp_path / "i.yaml", server, identity_file=f"'{tmp_path}/other key'")
    said = fleet("fleet reserve --list -i i.yaml").stderr
    (line,) = [line for line in said.splitlines() if "try:" in line]
    command = line.partition("try: ")[2].partition(";")[0]
    assert command.startswith("ssh "), said
    taken = fleet(command.replace("ssh ", "ssh -G ", 1)).stdout.splitlines()
    host = server.host()
    wanted = {f"port {host.port}", f"user {host.user}", "hostname 127.0.0.1"}
    assert wanted | {f"identityfile {tmp_path}/other key"} <= set(taken)
    typed = fleet(command.replace("ssh ", "ssh -oBatchMode=yes -oStrictHostKeyChecking=no ", 1))
    assert "Permission denied" in typed.stderr


def test_what_fsck_says_to_do_next(tmp_path: Path) -> None:
    """A damaged file that nobody here has yet, then one that is given."""
    (tmp_path / "my files").mkdir()
    (tmp_path / "my files" / "model").write_text("whole")
    (tmp_path / "my boards.yaml").write_text(
        f"all:\n  hosts:\n    evk-1: {{transport: local, base_dir: '{tmp_path}/base'}}\n"
    )
    fleet = Shell(tmp_path, FLEET_LEASE_DIR=str(tmp_path))
    push = "fleet push 'my files' --name app -i 'my boards.yaml'"
    assert fleet(push).returncode == 0
    blob = (tmp_path / "base" / "current" / "app" / "model").resolve()
    blob.chmod(0o644)
    blob.write_text("WHOLE")
    (repair,) = hinted(fleet("fleet status --verify -i 'my boards.yaml'"))
    assert repair == "fleet status --verify --repair -i 'my boards.yaml'"
    left = fleet(repair)
    assert (left.returncode, len(hinted(left))) == (1, 2), left.stderr
    assert hinted(left)[1] == "fleet push SOURCES -i 'my boards.yaml'"
    assert fleet(f"{repair} --source 'my files'").returncode == 0
    assert fleet("fleet status --verify -i 'my boards.yaml'").returncode == 0


def test_what_a_deploy_says_to_do_next(tmp_path: Path) -> None:
    with yard(tmp_path, 1) as boards:
        fleet = Shell(tmp_path)
        boards.make_sick("b1")
        deploy = shlex.join(["fleet", *boards.deploy_args("-l", "b1")])
        (resume,) = (c for c in hinted(fleet(deploy)) if "resume" in c)
        given = f"-i {boards.inventory}"
        lock = fleet(f"fleet reserve b1 {given}", FLEET_OWNER="ann@desk")
        assert lock.returncode == 0, lock.stderr
        who, unlock, *_ = hinted(fleet(resume))
        assert (who, unlock) == (
            f"fleet reserve --list b1 {given}",
            f"fleet reserve --end b1 --force {given}",
        )
        assert fleet(unlock).returncode == 0
        boards.make_sick("b1", sick=False)
        assert fleet(resume).returncode == 0
        (measure,) = hinted(fleet(deploy))
        assert measure == f"fleet run {boards.playbook} {given} -l b1"
        measured = fleet(measure)
        assert measured.returncode == 0, measured.stderr
        (show,) = hinted(measured)
        assert fleet(show).returncode == 0
        (show,) = hinted(fleet(f"{measure} --output kept"))
        assert fleet(show).returncode == 0, show


def test_a_lock_by_another_name(tmp_path: Path) -> None:
    with yard(tmp_path, 1) as boards:
        fleet = Shell(tmp_path)
        given = f"{boards.playbook} -i {boards.inventory}"
        deploy = f"fleet deploy {given} --frozen --lock-file my.lock --offline"
        (write,) = hinted(fleet(deploy))
        assert (write,) == tuple(
            hinted(fleet(f"fleet config lock {given} --check --lock-file my.lock"))
        )
        written = fleet(write)
        assert written.returncode == 0, written.stderr
        done = fleet(deploy)
        assert done.returncode == 0, done.stderr
        (next_,) = hinted(written)
        done = fleet(next_)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("locked", ["", "--locked", "--frozen"])
def test_a_run_that_is_gone_on_with_is_of_the_boards_and_the_lock_that_it_was(
    tmp_path: Path, locked: str
) -> None:
    with yard(tmp_path, 2) as boards:
        fleet = Shell(tmp_path)
        given = f"{boards.playbook} -i {boards.inventory}"
        lock = f"{locked} --lock-file my.lock" if locked else ""
        if locked:
            assert fleet(f"fleet config lock {given} --lock-file my.lock").returncode == 0
        asked = boards.contacts("b2")
        boards.make_sick("b1")
        begun = fleet(f"fleet deploy {given} --offline --no-run -l b1 -l '!b2' {lock}")
        assert begun.returncode == 1, begun.stderr
        with boards.inventory.open("a") as stream:
            stream.write("# a remark\n")
        boards.make_sick("b1", sick=False)
        deploy, resume = hinted(fleet("fleet deploy --resume last"))
        expected: dict[str, object] = {
            "playbook": str(boards.playbook),
            "inventory": str(boards.inventory),
            "limit": ["b1", "!b2"],
        }
        if locked:
            expected |= {locked[2:]: True, "lock_file": str(tmp_path / "my.lock")}
        assert parsed(deploy) == expected
        done = fleet(resume)
        assert done.returncode == 0, done.stderr
        done = fleet(deploy)
        assert done.returncode == 0, done.stderr
        assert boards.contacts("b2") == asked


def test_a_lab_names_files_that_are_there(tmp_path: Path) -> None:
    """Outside of a clone."""
    if why := can_unshare():
        pytest.skip(f"no namespace boards here: {why}")
    fleet = Shell(tmp_path)
    up = fleet("fleet lab up --count 1 --port 0")
    try:
        (facts,) = hinted(up)
        assert fleet(facts).returncode == 0, up.stderr
    finally:
        fleet("fleet lab down")
