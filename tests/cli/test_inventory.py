from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner, Result

from fleet.cli.main import build
from fleet.model.errors import InputError, InventoryError

EXAMPLE = Path(__file__).parents[2] / "inventories" / "evks.yaml"


def run(*words: str | Path) -> Result:
    """The result; a FleetError is in `exception`, as main() would get it."""
    return CliRunner().invoke(build("config"), [str(word) for word in words])


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.yaml"
    path.write_text("g:\n  hosts:\n    a: {prot: 1, password: hunter2}\n    b: {port: x}\n")
    return path


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    path = tmp_path / "hosts.yml"
    path.write_text(
        "all:\n  hosts:\n"
        "    a: {ansible_host: 192.0.2.1, ansible_password: hunter2, http_port: 80,"
        " labels: {x: y}}\n"
        "    b: {http_port: 81, ansible_hots: z, ansible_ssh_private_key_file: none/such}\n"
    )
    return path


def test_check_of_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "evk_ed25519").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    done = run("config", "check", EXAMPLE)
    assert done.exit_code == 0
    assert done.stdout.startswith(f"{EXAMPLE}: 6 hosts, 4 groups, no errors\n")
    assert "read variable | EVK_SUDO | sudo password | evk-01, evk-02" in done.stdout
    lines = done.stderr.splitlines()  # its addresses are those of RFC 5737
    assert lines
    assert all(", 192.0.2." in line or "@192.0.2.1, is a placeholder" in line for line in lines)


def test_check_knows_a_playbook(tmp_path: Path) -> None:
    good = run("config", "check", EXAMPLE.parents[1] / "playbooks" / "tiny-genie.yaml")
    assert (good.exit_code, "playbook, no errors" in good.stdout) == (0, True)
    path = tmp_path / "p.yaml"
    path.write_text("name: x\nbundle: .\nrun: {prompt: hi, temprature: 3}\n")
    done = run("config", "check", path)
    assert done.exit_code == InputError.exit_code
    assert f"{path}:3:19: unknown key 'temprature'" in done.stderr
    report = json.loads(run("config", "check", path, "--json").stdout)
    assert [error["error"] for error in report["errors"]] == ["PlaybookError"]


def test_check_lists_all_errors(bad: Path) -> None:
    done = run("config", "check", bad)
    assert done.exit_code == 2
    lines = done.stderr.splitlines()
    assert lines[0] == f"error: {bad}:3:9: unknown key 'prot'"
    assert lines[1] == "  try: did you mean 'port'?"
    assert lines[2].startswith(f"error: {bad}:3:28: the value is not a valid reference to a secret")
    assert lines[4] == f"error: {bad}:4:15: 'port' must be a whole number, not text"
    assert lines[-1] == f"{bad}: 3 errors"
    assert "hunter2" not in done.output


def test_check_shows_warnings_and_ignored_keys(mixed: Path) -> None:
    done = run("config", "check", "--inventory", mixed)
    assert done.exit_code == 0
    assert "Ansible inventory, 2 hosts, 0 groups, no errors" in done.stdout
    assert "'ansible_password' is a password in clear text" in done.stderr
    assert "did you mean 'ansible_host'?" in done.stderr
    assert f"the file {mixed.parent / 'none/such'} of identity_file does not exist" in done.stderr
    assert f"ignored: http_port ({mixed}:3:61, 2 times)" in done.stderr
    assert f"ignored: ansible_hots ({mixed}:4:24)" in done.stderr
    assert "hunter2" not in done.output


def test_check_json(bad: Path, mixed: Path) -> None:
    done = run("config", "check", bad, "--json")
    assert done.exit_code == 2
    body = json.loads(done.stdout)
    assert [each["position"] for each in body["errors"]] == [
        f"{bad}:3:9",
        f"{bad}:3:28",
        f"{bad}:4:15",
    ]
    assert (body["hosts"], body["ansible"]) == (None, False)
    body = json.loads(run("config", "check", mixed, "--json").stdout)
    assert (body["hosts"], body["ansible"], body["errors"]) == (2, True, [])
    assert {each["key"] for each in body["ignored"]} == {"http_port", "ansible_hots"}
    assert "hunter2" not in json.dumps(body)


def test_check_of_a_syntax_error_raises(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a:\n\tb: 1\n")
    assert isinstance(run("config", "check", path).exception, InventoryError)


def test_list_is_a_table(mixed: Path) -> None:
    done = run("config", "list", EXAMPLE, "--limit", "iq9,!evk-01", "-l", "bench")
    assert done.exit_code == 0
    for text in ("4 hosts", "evk-03", "192.0.2.13", "2222", "nightly, iq9", "QCS9075", "evk-05"):
        assert text in done.stdout
    assert "evk-01" not in done.stdout
    assert "hunter2" not in run("config", "list", mixed).output


def test_list_json_has_references_and_no_secrets(mixed: Path) -> None:
    done = run("config", "list", "-i", mixed, "--json", "--limit", "a")
    (host,) = json.loads(done.stdout)
    assert host["name"] == "a"
    assert host["address"] == "192.0.2.1"
    assert host["labels"] == {"x": "y"}
    assert host["password"].startswith("clear text of 'ansible_password'")
    assert host["become_password"] is None
    assert "hunter2" not in done.output
    hosts = json.loads(run("config", "list", EXAMPLE, "--json").stdout)
    assert len(hosts) == 6
    assert {each["become_password"] for each in hosts} == {"env:EVK_SUDO"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["config", "check"], "no inventory is given"),
        (["config", "list"], "no inventory is given"),
        (
            ["config", "list", "a.yaml", "-i", "b.yaml"],
            "you gave two inventories: one as FILE and one with --inventory",
        ),
        (["config", "list", "no-such.yaml"], "does not exist"),
    ],
)
def test_wrong_use(words: list[str], message: str) -> None:
    error = run(*words).exception
    assert isinstance(error, InputError)
    assert message in error.message


def test_list_of_nothing_is_an_error() -> None:
    error = run("config", "list", EXAMPLE, "--limit", "evk-99").exception
    assert isinstance(error, InventoryError)


@pytest.mark.parametrize("kind", ["inventory", "playbook"])
def test_schema(kind: str) -> None:
    done = run("config", "schema", kind)
    assert done.exit_code == 0
    Draft202012Validator.check_schema(json.loads(done.stdout))
    assert run("config", "schema", "other").exit_code == 2


@pytest.mark.parametrize("words", [["config", "check"], ["config", "list"], ["config", "schema"]])
def test_help_has_an_example(words: list[str]) -> None:
    assert "Example: fleet " in run(*words, "--help").stdout
