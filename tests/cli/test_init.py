"""`fleet init`: first files from what can be seen, and a plan that works with them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.config import scaffold
from fleet.config.inventory import load_inventory
from fleet.config.scaffold import Seen
from fleet.lab import Lab
from fleet.runtimes.store import RuntimeStore
from fleet.transport.seen import adb_devices, config_hosts

from .test_bad_input import ROOT

TINY = ROOT / "assets" / "tiny-genie"


def fleet(folder: Path, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fleet", *argv],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "NO_COLOR": "1", **env},
    )


@pytest.fixture
def user_lab(tmp_path: Path) -> object:
    with Lab.up(tmp_path / "lab", count=2, kind="user", base_port=0) as one:
        yield one


@pytest.mark.qairt
def test_init_and_plan_on_a_lab_give_a_plan_that_works(
    user_lab: Lab, tmp_path: Path, qairt_store: RuntimeStore
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "runtimes").symlink_to(qairt_store.root)
    lab = str(user_lab.folder.root)
    done = fleet(tmp_path, "init", "mine", "--lab", lab, "--bundle", str(TINY))
    assert done.returncode == 0, done.stderr
    words = ("-i", "mine/inventories/boards.yaml", "mine/playbooks/boards.yaml")
    assert "fleet plan -i inventories/boards.yaml" in done.stderr
    plan = fleet(tmp_path, "plan", *words, "--json", FLEET_HOME=str(home))
    assert plan.returncode == 0, plan.stdout + plan.stderr
    plans = [json.loads(line) for line in plan.stdout.splitlines() if '"Plan"' in line]
    assert [one["host"] for one in plans] == ["lab001", "lab002"]
    assert all(not one["refused"] and one["actions"] and one["emulated"] for one in plans)
    deployed = fleet(tmp_path, "deploy", *words, "--limit", "lab001", FLEET_HOME=str(home))
    assert deployed.returncode == 0, deployed.stdout + deployed.stderr


def test_without_a_bundle_the_plan_names_the_line_to_fill_in(tmp_path: Path) -> None:
    assert fleet(tmp_path, "init", ".", "ubuntu@10.0.0.7:2222", "[::1]:22").returncode == 0
    hosts = {one.name: one for one in load_inventory(tmp_path / "inventories/boards.yaml").hosts}
    assert (hosts["10.0.0.7"].user, hosts["10.0.0.7"].port) == ("ubuntu", 2222)
    assert hosts["1"].address == "::1"
    plan = fleet(tmp_path, "plan", "-i", "inventories/boards.yaml", "playbooks/boards.yaml")
    assert plan.returncode == 2
    assert "playbooks/boards.yaml:" in plan.stderr
    assert "NAME-YOUR-BUNDLE" in plan.stderr


def test_hosts_of_an_ssh_config(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host evk-01 evk-02\n  User ubuntu\nHost *.lab !bad\n  Port 1\nHost *\n")
    assert config_hosts(config) == ["evk-01", "evk-02"]
    done = fleet(tmp_path, "init", "x", "--ssh-config", str(config), "--json")
    assert [one["name"] for one in json.loads(done.stdout)["devices"]] == ["evk-01", "evk-02"]
    first = load_inventory(tmp_path / "x/inventories/boards.yaml").hosts[0]
    assert (first.address, first.ssh_config) == ("evk-01", config)
    missing = fleet(tmp_path, "init", "y", "--ssh-config", "nope")
    assert (missing.returncode, (tmp_path / "y").exists()) == (2, False)


def test_nothing_is_overwritten_and_nothing_is_left_half(tmp_path: Path) -> None:
    (tmp_path / "a" / "playbooks").mkdir(parents=True)
    (tmp_path / "a" / "playbooks" / "boards.yaml").write_text("mine")
    done = fleet(tmp_path, "init", "a", "10.0.0.7")
    assert done.returncode == 2
    assert "exists already" in done.stderr
    files = [str(one.relative_to(tmp_path)) for one in (tmp_path / "a").rglob("*") if one.is_file()]
    assert files == ["a/playbooks/boards.yaml"]
    (tmp_path / "file").write_text("")
    assert fleet(tmp_path, "init", "file/x", "10.0.0.7").returncode == 2


@pytest.mark.parametrize(
    "text", ["", "-oProxyCommand=x", "a b", "u@", "h:0", "h:99999", "h:x", "a@b@c"]
)
def test_what_is_no_address_is_refused(tmp_path: Path, text: str) -> None:
    done = fleet(tmp_path, "init", "x", "--", text)
    assert done.returncode == 2
    assert not (tmp_path / "x").exists()
    assert "Traceback" not in done.stderr


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.text(st.characters(blacklist_categories=("Cs",)), min_size=1, max_size=30), max_size=5
    )
)
def test_any_name_comes_back_from_the_file(tmp_path: Path, names: list[str]) -> None:
    seen = scaffold.unique(
        Seen(scaffold.safe_name(name), name, {"host": "10.0.0.7", "labels": {"said": name}})
        for name in names
        if "{{" not in name and "{%" not in name
    )
    path = tmp_path / "inventory.yaml"
    path.write_text(scaffold.inventory_text(seen), "utf-8")
    hosts = {one.name: one.labels.get("said") for one in load_inventory(path).hosts}
    assert hosts == {one.name: one.values["labels"]["said"] for one in seen}  # type: ignore[index]


def test_phones_of_an_adb_server_that_runs_are_comments() -> None:
    answer = (
        b"8A1X device usb:1-4 product:p model:Pixel_9 transport_id:1\nB2 unauthorized usb:1-5\n"
    )

    def serve(server: socket.socket) -> None:
        peer, _ = server.accept()
        with peer:
            assert peer.recv(64) == b"000ehost:devices-l"
            peer.sendall(b"OKAY" + f"{len(answer):04x}".encode() + answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,), daemon=True)
        thread.start()
        found = adb_devices(server.getsockname()[1])
        thread.join(10)
    assert found == [("8A1X", "device", "Pixel_9"), ("B2", "unauthorized", "")]
    text = scaffold.inventory_text([Seen("8A1X", "adb", {"serial": "8A1X"}, usable=False)])
    assert "    # 8A1X:" in text


def test_without_an_adb_server_there_are_no_phones() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert adb_devices(port) == []
