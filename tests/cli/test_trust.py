"""`fleet trust` through the real command line, on boards that are re-flashed."""

from __future__ import annotations

import json
from pathlib import Path

from fleet.lab import Lab
from tests.transport.sshd import free_port

from .test_bad_input import Cli, cli, lab

__all__ = ["cli", "lab"]


def own_pins(cli: Cli, tmp_path: Path) -> str:
    return cli.inventory(known_hosts=str(tmp_path / "pins"))


def test_a_new_host_is_pinned_and_noted(cli: Cli, tmp_path: Path) -> None:
    inventory = own_pins(cli, tmp_path)
    assert cli("facts", "-i", inventory).returncode == 3
    done = cli("trust", "lab001", "-i", inventory, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert (row["outcome"], row["was"]) == ("pinned", "")
    (line,) = json.loads(cli("trust", "lab001", "-i", inventory, "--log", "--json").stdout)
    assert (line["why"], line["old"], line["new"]) == ("new", "", row["offered"])
    assert "@" in line["by"]
    again = cli("trust", "lab001", "-i", inventory, "--yes", "--json")
    assert json.loads(again.stdout)[0]["outcome"] == "unchanged"
    assert len((tmp_path / "pins.log").read_text().splitlines()) == 1


def test_a_reflashed_board_is_pinned_anew_with_both_fingerprints(
    lab: Lab, cli: Cli, tmp_path: Path
) -> None:
    inventory = own_pins(cli, tmp_path)
    cli("trust", "lab001", "-i", inventory, "--yes")
    lab.fault("lab001", "new-host-key")
    try:
        refused = cli("facts", "-i", inventory)
        assert refused.returncode == 3
        assert "CHANGED" in refused.stderr
        careful = cli("trust", "lab001", "-i", inventory, "--yes")
        assert careful.returncode == 2
        assert "--reflashed" in careful.stderr
        assert cli("trust", "lab001", "-i", inventory, "--reflashed", "--yes").returncode == 0
        first, second = json.loads(
            cli("trust", "lab001", "-i", inventory, "--log", "--json").stdout
        )
        assert second["why"] == "reflashed"
        assert second["old"] == first["new"] != second["new"]
        assert cli("facts", "-i", inventory).returncode == 0
        table = cli("trust", "lab001", "-i", inventory, "--log").stdout
        assert "reflashed" in table
    finally:
        lab.power_cycle("lab001")


def test_without_a_terminal_nobody_is_asked_and_nothing_pinned(cli: Cli, tmp_path: Path) -> None:
    done = cli("trust", "lab001", "-i", own_pins(cli, tmp_path))
    assert done.returncode == 2
    assert "fleet trust lab001 --yes" in done.stderr
    assert not (tmp_path / "pins").exists()


def test_one_board_that_is_not_there_does_not_keep_others_from_being_pinned(
    cli: Cli, tmp_path: Path
) -> None:
    port = free_port()
    hosts = f"    lab000: {{host: 127.0.0.1, port: {port}}}\n    lab001:\n    lab002:\n"
    inventory = cli.inventory(hosts, known_hosts=str(tmp_path / "pins"))
    done = cli("trust", "all", "-i", inventory, "--yes", "--json")
    assert done.returncode == 3
    rows = {row["host"]: row for row in json.loads(done.stdout)}
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "lab000": "failed",
        "lab001": "pinned",
        "lab002": "pinned",
    }
    assert rows["lab000"]["error"]["error"] == "UnreachableError"
    assert len((tmp_path / "pins").read_text().splitlines()) == 2


def test_accepting_new_keys_is_noted_too(cli: Cli, tmp_path: Path) -> None:
    inventory = own_pins(cli, tmp_path)
    assert cli("facts", "-i", inventory, "--accept-new").returncode == 0
    (line,) = json.loads(cli("trust", "lab001", "-i", inventory, "--log", "--json").stdout)
    assert line["why"] == "accept-new"


def test_a_damaged_log_is_named_with_its_line(cli: Cli, tmp_path: Path) -> None:
    inventory = own_pins(cli, tmp_path)
    (tmp_path / "pins.log").write_text("{\n")
    done = cli("trust", "lab001", "-i", inventory, "--log")
    assert done.returncode == 2
    assert "pins.log, the log of trusted host keys, is damaged" in done.stderr


def test_another_device_than_meant_is_refused_before_anything_is_written(cli: Cli) -> None:
    before = cli.tree()
    done = cli("deploy", "-i", cli.inventory(identity="another"), cli.playbook())
    assert done.returncode == 3
    assert "`identity:` in the inventory is another" in done.stderr
    assert cli.tree() == before


def test_the_device_that_is_meant_is_served(lab: Lab, cli: Cli) -> None:
    machine = lab.exec("lab001", ["cat", "/etc/machine-id"]).stdout.strip()
    assert len(machine) == 32
    done = cli("plan", "-i", cli.inventory(identity=machine), cli.playbook())
    assert done.returncode == 0, done.stderr
