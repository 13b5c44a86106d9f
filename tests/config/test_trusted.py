"""Whose files fleet takes: 56 layouts as their users, and what needs no other user."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fleet.cli.main import build
from fleet.config import trusted
from fleet.config.inventory import load_inventory
from fleet.lab.namespace import can_unshare
from fleet.model.errors import InputError, InventoryError
from fleet.model.home import fleet_home
from tests.config.layouts import LAYOUTS, NO_NAMESPACE, Layout

ROOT = Path(__file__).parents[2]
USED, REFUSED = 3, 2  # exit codes: no board answers, and bad input
GIT = (2, 39)  # since then git looks at the folder of a repository (2.35.2) and at who called sudo


@pytest.fixture(scope="module")
def seen() -> Iterator[dict[str, dict[str, Any]]]:
    """What happened in each layout."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files to other users")
    if why := can_unshare():
        pytest.skip(f"no mount namespaces here: {why}")
    folder = Path(tempfile.mkdtemp(prefix="fleet-trust-"))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.config.layouts", folder],
            cwd=ROOT, capture_output=True, text=True, check=False, timeout=500,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        yield json.loads(done.stdout)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_another_users_files_run_nothing_and_send_nothing(
    seen: dict[str, dict[str, Any]], layout: Layout
) -> None:
    """A program that was started leaves a file, a connection waits at the port of the boards."""
    found = seen[layout.name]
    if found["code"] == NO_NAMESPACE:
        pytest.skip("a user may make no user namespaces here")
    assert (found["ran"], found["left"]) == (layout.used, layout.used), found["said"]
    assert found["code"] == (USED if layout.used else REFUSED), found["said"]
    said = layout.says.removeprefix("!")
    assert not said or (said in found["said"]) == (not layout.says.startswith("!")), found["said"]


@pytest.mark.parametrize(
    "layout", [each for each in LAYOUTS if each.git is not None], ids=lambda layout: layout.name
)
def test_what_git_says_of_the_same_folder(seen: dict[str, dict[str, Any]], layout: Layout) -> None:
    """git asks for the owner alone: it takes what others may write to, and refuses root's."""
    words = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True)
    if tuple(map(int, words.stdout.split()[2].split(".")[:2])) < GIT:
        pytest.skip("this git is too old to ask")
    assert seen[layout.name]["git"] == layout.git


def test_the_layouts_are_many_and_both_ways() -> None:
    assert len({layout.name for layout in LAYOUTS}) == len(LAYOUTS) >= 40
    assert sum(layout.used for layout in LAYOUTS) >= 20


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that everybody may write to, with an inventory; nothing is trusted."""
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "home"))
    monkeypatch.delenv(trusted.VARIABLE, raising=False)
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "inv.yaml").write_text("all: {hosts: {a: {host: 127.0.0.1}}}\n")
    folder.chmod(0o777)
    return folder


def test_a_folder_is_refused_trusted_listed_and_refused_again(shared: Path) -> None:
    inventory, run = shared / "inv.yaml", CliRunner()
    with pytest.raises(InventoryError, match="can be written by every user") as caught:
        load_inventory(inventory)
    command = caught.value.hint.partition(": ")[2].partition(" (")[0].split()
    assert command == ["fleet", "config", "trust", str(shared)]
    assert run.invoke(build(), command[1:]).exit_code == 0
    assert run.invoke(build(), command[1:]).exit_code == 0
    assert load_inventory(inventory).hosts
    assert run.invoke(build(), ["config", "trust"]).stdout.split() == [str(shared)]
    listed = fleet_home() / trusted.LIST
    assert listed.stat().st_mode & 0o777 == 0o600
    assert listed.read_text() == f"{shared}\n"
    assert run.invoke(build(), [*command[1:], "--remove"]).exit_code == 0
    with pytest.raises(InventoryError):
        load_inventory(inventory)
    again = run.invoke(build(), [*command[1:], "--remove"])
    assert "is not in the list" in str(again.exception)


def test_of_a_checkout_the_whole_is_to_be_trusted(shared: Path) -> None:
    (shared / "inventories").mkdir()
    (shared / "inventories/inv.yaml").write_text("all: {hosts: {a: {host: 127.0.0.1}}}\n")
    for mark, folder in (("", shared / "inventories"), (".git", shared)):
        (shared / mark).mkdir(exist_ok=True)
        fault = trusted.fault_of(shared / "inventories/inv.yaml")
        assert fault is not None
        assert (fault.place, fault.folder) == (shared, folder)


def test_a_link_is_trusted_by_where_it_leads(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(shared)
    assert trusted.trust(tmp_path / "link") == shared
    assert load_inventory(shared / "inv.yaml").hosts
    assert load_inventory(tmp_path / "link/inv.yaml").hosts
    with pytest.raises(InputError, match="it is not a folder"):
        trusted.trust(shared / "inv.yaml")
    with pytest.raises(InputError, match="cannot trust the folder"):
        trusted.trust(shared / "nowhere")


def test_a_list_that_others_can_write_does_not_count(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted.trust(shared)
    listed = fleet_home() / trusted.LIST
    listed.chmod(0o666)
    assert trusted.folders() == []
    with pytest.raises(InventoryError):
        load_inventory(shared / "inv.yaml")
    monkeypatch.setenv("FLEET_HOME", str(shared / "home"))
    with pytest.raises(InputError, match="fleet ignores the list"):
        trusted.trust(shared)


def test_check_tells_what_an_untrusted_inventory_would_do_and_does_not_do_it(
    shared: Path, tmp_path: Path
) -> None:
    (shared / "inv.yaml").write_text(f"""all:
  hosts:
    a: {{host: 10.0.0.7, port: 2222, password: "cmd:touch {tmp_path}/PWN", ssh_config: cfg}}
    b: {{host: 10.0.0.8, password: "file:secret", become_password: "env:TOKEN"}}
    c: {{host: 10.0.0.9, password: "file:secret", key_passphrase: "env:PHRASE"}}
""")
    (shared / "cfg").write_text(
        f'Match host x exec "touch {tmp_path}/PWN"\nHost *\n  ProxyCommand = nc %h %p\n'
        "Host y\n  ProxyCommand none\n  User exec\n"
    )
    done = CliRunner().invoke(build(), ["config", "check", str(shared / "inv.yaml"), "--json"])
    assert done.exit_code == 0
    report = json.loads(done.stdout)
    assert "can be written by every user" in report["untrusted"]
    found = {(each["does"], each["what"], tuple(each["sent_to"])) for each in report["powers"]}
    assert found == {
        ("run", f"touch {tmp_path}/PWN", ("10.0.0.7:2222",)),
        ("read file", str(shared / "secret"), ("10.0.0.8", "10.0.0.9")),
        ("read variable", "TOKEN", ("10.0.0.8",)),
        ("read variable", "PHRASE", ()),
        ("run", f"touch {tmp_path}/PWN", ()),
        ("run", "nc %h %p", ()),
    }
    assert not (tmp_path / "PWN").exists()
    text = CliRunner().invoke(build(), ["config", "check", str(shared / "inv.yaml")])
    assert "read variable" in text.stdout
    assert "is not trusted, and other commands refuse it" in text.stderr
