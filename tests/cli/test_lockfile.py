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
    done = cli("config", "lock", playbook, "-i", inventory)
    assert done.returncode == 0, done.stderr
    return cli, inventory, playbook


def test_written_twice_it_is_the_same_and_names_no_path(locked: tuple[Cli, str, str]) -> None:
    cli, inventory, playbook = locked
    text = (cli.folder / "fleet.lock").read_text()
    assert str(cli.folder) not in text
    assert "2.51.0." in text
    assert '"arch": "x86_64"' in text
    done = cli("config", "lock", playbook, "-i", inventory, "--json")
    assert json.loads(done.stdout)["changed"] is False
    assert (cli.folder / "fleet.lock").read_text() == text
    assert cli("config", "lock", playbook, "-i", inventory, "--check").returncode == 0


def test_a_changed_bundle_is_named_and_not_deployed(locked: tuple[Cli, str, str]) -> None:
    cli, inventory, playbook = locked
    before = cli.tree()
    with (cli.folder / "bundle" / "tokenizer.json").open("a") as stream:
        stream.write(" ")
    checked = cli("config", "lock", playbook, "-i", inventory, "--check")
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
    assert "changed after fleet.lock was written" in refused.stderr
    done = cli("deploy", playbook, "-i", inventory, "--frozen", "--no-run")
    assert done.returncode == 0, done.stderr
    assert (
        "the playbook changed" in cli("config", "lock", playbook, "-i", inventory, "--check").stdout
    )


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
    assert cli("status", "-i", inventory, "--drift", playbook).returncode == 1  # it is younger
    cli.lab.exec("lab001", ["touch", "-d", "2001-01-01", blob])
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
        (
            lambda text: text.replace("lib/libGenie.so", ".installed"),
            "lib/libGenie.so is not in the lock file",
        ),
        (
            lambda text: text.replace("lib/libGenie.so", r"lib/\e[31m"),
            "the lock file contains the file name",
        ),
        (lambda text: text.replace("lib/libGenie.so", "lib/libQnnHtp.so"), "two entries"),
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
    assert "fleet config lock" in done.stderr


def test_an_edited_size_is_caught_and_the_lock_is_not_touched(
    locked: tuple[Cli, str, str],
) -> None:
    cli, inventory, playbook = locked
    path = cli.folder / "fleet.lock"
    text = path.read_text().replace('"size": 7932', '"size": 7933')
    path.write_text(text)
    for word in ("--locked", "--frozen"):
        done = cli("deploy", playbook, "-i", inventory, word, "--no-run")
        assert done.returncode == 2
        assert "7933 bytes" in done.stderr
    assert cli("config", "lock", playbook, "-i", inventory, "--check").returncode == 1
    assert path.read_text() == text


def test_frozen_leaves_out_what_came_to_the_bundle_later(locked: tuple[Cli, str, str]) -> None:
    cli, inventory, playbook = locked
    (cli.folder / "bundle" / "README.md").write_text("later")
    refused = cli("deploy", playbook, "-i", inventory, "--locked", "--dry-run")
    assert refused.returncode == 2
    assert "bundle/README.md is not in the lock" in refused.stderr
    done = cli("deploy", playbook, "-i", inventory, "--frozen", "--dry-run")
    assert done.returncode == 0, done.stderr
    shown = done.stdout.split("tiny-genie/")[1][:16]
    assert f'id: "{shown}"' in (cli.folder / "fleet.lock").read_text()


def test_frozen_fetches_nothing(locked: tuple[Cli, str, str]) -> None:
    cli, inventory, playbook = locked
    path = cli.folder / "fleet.lock"
    path.write_text(path.read_text().replace("2.51.0.", "2.50.40."))
    done = cli("deploy", playbook, "-i", inventory, "--frozen", "--dry-run")
    assert done.returncode == 1
    assert "--frozen forbids a download" in done.stderr
    assert "fleet runtime fetch 2.50.40." in done.stderr


def test_options_that_would_not_be_used_are_refused(locked: tuple[Cli, str, str]) -> None:
    cli, inventory, playbook = locked
    for argv in (
        ("deploy", playbook, "--locked", "--frozen"),
        ("deploy", playbook, "--lock-file", "x.lock"),
        ("plan", playbook, "--lock-file", "x.lock"),
        ("status", "--lock-file", "x.lock"),
    ):
        done = cli(*argv, "-i", inventory)
        assert done.returncode == 2, argv
        assert done.stderr.count("error:") == 1


def test_another_playbooks_lock_and_other_files_are_not_overwritten(
    locked: tuple[Cli, str, str],
) -> None:
    cli, inventory, playbook = locked
    path = cli.folder / "fleet.lock"
    text = path.read_text()
    other = cli.folder / "other.yaml"
    other.write_text(Path(playbook).read_text().replace("name: tiny-genie", "name: other"))
    for argv in (("config", "lock"), ("config", "lock", "--check"), ("plan", "--write-lock")):
        done = cli(*argv, str(other), "-i", inventory)
        assert done.returncode == 2, done.stdout
        assert "belongs to tiny-genie, but the playbook is other" in done.stderr
    for words in (("deploy", str(other), "--frozen"), ("status", "--drift", str(other))):
        assert "the lock file belongs to tiny-genie" in cli(*words, "-i", inventory).stderr
    stranger = cli.folder / "important.txt"
    stranger.write_text("mine")
    done = cli("config", "lock", playbook, "-i", inventory, "--lock-file", str(stranger))
    assert done.returncode == 2
    assert f"fleet does not overwrite {stranger}" in done.stderr
    assert (stranger.read_text(), path.read_text()) == ("mine", text)


def test_a_conflict_is_written_anew_and_with_a_limit_it_is_not(
    locked: tuple[Cli, str, str],
) -> None:
    cli, inventory, playbook = locked
    path = cli.folder / "fleet.lock"
    good = path.read_text()
    broken = good.replace("releases:", "<<<<<<< ours\nreleases:")
    path.write_text(broken)
    assert cli("config", "lock", playbook, "-i", inventory, "--limit", "lab001").returncode == 2
    assert path.read_text() == broken
    done = cli("config", "lock", playbook, "-i", inventory)
    assert done.returncode == 0, done.stderr
    assert "warning" in done.stderr
    assert path.read_text() == good


def test_a_limit_keeps_the_kinds_that_were_not_asked(locked: tuple[Cli, str, str]) -> None:
    cli, inventory, playbook = locked
    path = cli.folder / "fleet.lock"
    good = path.read_text()
    body = good.split("releases:\n")[1]
    evk = body.replace("x86_64-linux-clang", "aarch64-oe-linux-gcc11.2")
    both = good.replace("releases:\n", "releases:\n" + evk)
    path.write_text(both)
    assert cli("config", "lock", playbook, "-i", inventory, "--limit", "lab001").returncode == 0
    assert path.read_text() == both
    checked = cli("config", "lock", playbook, "-i", inventory, "--check")
    assert checked.returncode == 1
    assert "aarch64-oe-linux-gcc11.2 v73: is in the lock file, but no device" in checked.stdout
    assert cli("config", "lock", playbook, "-i", inventory).returncode == 0
    assert path.read_text() == good


def test_plan_writes_the_same_lock(locked: tuple[Cli, str, str]) -> None:
    cli, inventory, playbook = locked
    path = cli.folder / "mine.lock"
    argv = ("plan", playbook, "-i", inventory, "--write-lock", "--lock-file", str(path))
    cli.lab.fault("lab001", "no-python3")
    try:
        refused = cli(*argv)
        assert refused.returncode == 1
        assert "the lock file was not written" in refused.stderr
        assert not path.exists()
    finally:
        cli.lab.heal("lab001", "no-python3")
    done = cli(*argv)
    assert done.returncode == 0, done.stderr
    assert "x86_64-linux-clang  tiny-genie/" in done.stdout
    assert path.read_text() == (cli.folder / "fleet.lock").read_text()
    locked_deploy = cli(
        "deploy", playbook, "-i", inventory, "--dry-run", "--locked", "--lock-file", str(path)
    )
    assert locked_deploy.returncode == 0, locked_deploy.stderr
