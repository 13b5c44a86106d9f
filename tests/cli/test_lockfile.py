"""fleet.lock through the real command line, on a real board."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from .test_bad_input import ROOT, Cli, cli, lab

__all__ = ["cli", "lab"]
pytestmark = pytest.mark.qairt


@pytest.fixture
def locked(cli: Cli, tmp_path: Path) -> tuple[Cli, str, str]:
    bundle = tmp_path / "bundle"
    shutil.copytree(ROOT / "assets" / "tiny-genie", bundle)
    (bundle / "SHA256SUMS").unlink()
    inventory, playbook = cli.inventory(), cli.playbook(bundle=str(bundle))
    done = cli("lock-file", playbook, "-i", inventory)
    assert done.returncode == 0, done.stderr
    return cli, inventory, playbook


def test_written_twice_it_is_the_same_and_names_no_path(locked: tuple[Cli, str, str]) -> None:
    cli, inventory, playbook = locked
    text = (cli.folder / "fleet.lock").read_text()
    assert str(cli.folder) not in text
    assert "2.51.0." in text
    assert '"arch": "x86_64"' in text
    done = cli("lock-file", playbook, "-i", inventory, "--json")
    assert json.loads(done.stdout)["changed"] is False
    assert (cli.folder / "fleet.lock").read_text() == text
    assert cli("lock-file", playbook, "-i", inventory, "--check").returncode == 0


def test_a_changed_bundle_is_named_and_not_deployed(locked: tuple[Cli, str, str]) -> None:
    cli, inventory, playbook = locked
    before = cli.tree()
    with (cli.folder / "bundle" / "tokenizer.json").open("a") as stream:
        stream.write(" ")
    checked = cli("lock-file", playbook, "-i", inventory, "--check")
    assert checked.returncode == 1
    assert "bundle/tokenizer.json" in checked.stdout
    for word in ("--locked", "--frozen"):
        done = cli("deploy", playbook, "-i", inventory, word, "--no-run")
        assert done.returncode == 2
        assert "bundle/tokenizer.json" in done.stderr
    assert cli.tree() == before


def test_locked_wants_the_playbook_unchanged_and_frozen_does_not(
    locked: tuple[Cli, str, str],
) -> None:
    cli, inventory, playbook = locked
    with Path(playbook).open("a") as stream:
        stream.write("# a remark\n")
    refused = cli("deploy", playbook, "-i", inventory, "--locked", "--no-run")
    assert refused.returncode == 2
    assert "changed since it was locked" in refused.stderr
    done = cli("deploy", playbook, "-i", inventory, "--frozen", "--no-run")
    assert done.returncode == 0, done.stderr
    assert "the playbook changed" in cli("lock-file", playbook, "-i", inventory, "--check").stdout


def test_drift_names_what_is_not_as_locked(locked: tuple[Cli, str, str]) -> None:
    cli, inventory, playbook = locked
    cli("deploy", playbook, "-i", inventory, "--locked", "--no-run")
    fine = cli("status", "-i", inventory, "--drift", playbook)
    assert fine.returncode == 0, fine.stdout + fine.stderr
    store = "/home/ubuntu/fleet/store"
    lock = (cli.folder / "fleet.lock").read_text().splitlines()
    row = next(line for line in lock if "tokenizer.json" in line)
    sha = json.loads(row.strip().removeprefix("- "))["sha256"]
    blob = f"{store}/{sha}"
    damage = f"chmod 644 {blob}; printf X | dd of={blob} conv=notrunc bs=1 2>/dev/null"
    cli.lab.exec("lab001", ["sh", "-c", damage])
    assert cli("status", "-i", inventory, "--drift", playbook).returncode == 0
    found = cli("status", "-i", inventory, "--drift", playbook, "--verify", "--json")
    assert found.returncode == 1
    assert json.loads(found.stdout)[0]["drift"] == ["bundle/tokenizer.json is damaged"]
    cli.lab.exec("lab001", ["rm", "-f", blob])
    gone = cli("status", "-i", inventory, "--drift", playbook)
    assert gone.returncode == 1
    assert "bundle/tokenizer.json is missing" in gone.stdout
    cli("deploy", playbook, "-i", inventory, "--locked", "--no-run")
    assert cli("status", "-i", inventory, "--drift", playbook).returncode == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: "", "fleet.lock"),
        (lambda text: text.replace("schema: 1", "schema: 2"), "fleet.lock:2"),
        (lambda text: "<<<<<<< ours\n" + text, "merge conflict"),
        (lambda text: text.replace("lib/libGenie.so", "../../etc/passwd"), "cannot be the name"),
        (lambda text: text.replace('"size": ', '"size": -'), "fleet.lock:"),
        (lambda text: text.replace('"size": ', '"size": 99999999999999999999'), "fleet.lock:"),
        (lambda text: text[: len(text) // 2], "fleet.lock"),
        (lambda text: text.replace("target:", "targets:"), "targets"),
    ],
)
def test_a_hostile_or_broken_lock_is_refused_with_its_place(
    locked: tuple[Cli, str, str], change: object, said: str
) -> None:
    cli, inventory, playbook = locked
    path = cli.folder / "fleet.lock"
    path.write_text(change(path.read_text()))  # type: ignore[operator]
    done = cli("deploy", playbook, "-i", inventory, "--locked", "--no-run")
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_lock_the_command_that_writes_it_is_named(cli: Cli) -> None:
    done = cli("deploy", cli.playbook(), "-i", cli.inventory(), "--locked")
    assert done.returncode == 2
    assert "fleet lock-file" in done.stderr
