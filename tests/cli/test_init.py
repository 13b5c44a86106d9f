"""`fleet init`: first files from what can be seen, and a plan that works with them."""

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
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.cli.init import _boards
from fleet.config.inventory import load_inventory
from fleet.config.scaffold import (
    FoundDevice,
    from_address,
    inventory_text,
    read_back,
    safe_name,
    tried,
    unique,
    write_all,
)
from fleet.lab import Board, Lab
from fleet.lab.folder import LabFolder, start_ticks
from fleet.lab.namespace import can_unshare
from fleet.model.errors import InputError
from fleet.runtimes.store import RuntimeStore
from fleet.transport.seen import adb_devices, config_hosts
from tests import warm

from .test_bad_input import ROOT

TINY = ROOT / "assets" / "tiny-genie"


def fleet(folder: Path, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    own = {"HOME": str(folder), "NO_COLOR": "1"}
    return warm.fleet(*argv, cwd=folder, env={**os.environ, **own, **env})


@pytest.fixture(params=[pytest.param("user", marks=pytest.mark.slow), "namespace"])
def lab(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lab]:
    why = can_unshare() if request.param == "namespace" else ""
    if why:
        pytest.skip(f"no namespace boards here: {why}")
    with Lab.up(tmp_path / "lab", count=2, kind=request.param, base_port=0) as one:
        yield one


def tree(folder: Path) -> list[str]:
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*"))


@pytest.mark.qairt
def test_init_and_plan_on_a_lab_give_a_plan_that_works(
    lab: Lab, tmp_path: Path, qairt_store: RuntimeStore
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "runtimes").symlink_to(qairt_store.root)
    root = str(lab.folder.root)
    done = fleet(tmp_path, "init", "mine", "--lab", root, "--bundle", str(TINY), "--probe")
    assert done.returncode == 0, done.stderr
    words = ("-i", "mine/inventories/boards.yaml", "mine/playbooks/boards.yaml")
    assert "then: fleet plan\n" in done.stderr
    written = (tmp_path / "mine/inventories/boards.yaml").read_text()
    assert written.count("      # soc: QCS9075\n") == 2
    assert written.count("      # identity: ") == 2
    assert "emulated" in written
    uncommented = tmp_path / "mine/inventories/taken.yaml"
    uncommented.write_text(
        written.replace("      # soc", "      soc").replace("# identity", "identity")
    )
    assert {one.soc for one in load_inventory(uncommented).hosts} == {"QCS9075"}
    checked = ("-i", str(uncommented), words[2])
    assert fleet(tmp_path, "plan", *checked, FLEET_HOME=str(home)).returncode == 0
    asked = (tmp_path / "mine/playbooks/boards.yaml").read_text()
    assert "sample_prompt.txt" in asked
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
    done = fleet(tmp_path, "init", "x", "10.0.0.7", "--ssh-config", str(config), "--json")
    names = [one["name"] for one in json.loads(done.stdout)["devices"]]
    assert names == ["10.0.0.7", "evk-01", "evk-02"]
    first = load_inventory(tmp_path / "x/inventories/boards.yaml").hosts[1]
    assert (first.address, first.ssh_config) == ("evk-01", config)
    missing = fleet(tmp_path, "init", "y", "--ssh-config", "nope")
    assert (missing.returncode, (tmp_path / "y").exists()) == (2, False)


def test_a_match_and_comments_make_no_hosts(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host evk # my board\nMatch final all\n  Port 1\nMatch user a\nHost b\n")
    assert config_hosts(config) == ["b", "evk"]


def test_hosts_of_files_that_the_users_config_includes(tmp_path: Path) -> None:
    ssh = tmp_path / ".ssh"
    (ssh / "conf d").mkdir(parents=True)
    (ssh / "config").write_text('Include "conf d/*" ~nobody-here/x /nowhere\nHost main\n')
    (ssh / "conf d" / "a").write_text("Host inner main\n  ProxyJump gate\nHost gate\n")
    (ssh / "conf d" / "b").write_text("include=~/.ssh/config\nHost last\n")
    (ssh / "conf d" / ".hidden").write_text("Host hidden\n")
    done = fleet(tmp_path, "init", "x", "--json")
    assert done.returncode == 0, done.stderr
    hosts = {one.name: one for one in load_inventory(tmp_path / "x/inventories/boards.yaml").hosts}
    assert {name: one.ssh_config for name, one in hosts.items()} == dict.fromkeys(
        ["main", "inner", "gate", "last"]
    )
    assert hosts["inner"].proxy_jump is None
    (ssh / "conf d" / "b").write_bytes(b"Host \xff\n")
    broken = fleet(tmp_path, "init", "y")
    assert (broken.returncode, (tmp_path / "y").exists()) == (2, False)
    assert "Traceback" not in broken.stderr


def test_hostile_aliases_are_quoted_or_comments(tmp_path: Path) -> None:
    config = tmp_path / "config"
    bad = "'we ird' \"we ird\" {{x}} -oProxyCommand=x"
    config.write_text(f"Host {bad}\nHost all ungrouped yes böard a[1:3] null 1e3\n", "utf-8")
    done = fleet(tmp_path, "init", "x", "--ssh-config", str(config), "--json")
    assert done.returncode == 0, done.stderr
    rows = {one["name"]: one for one in json.loads(done.stdout)["devices"]}
    hosts = load_inventory(tmp_path / "x/inventories/boards.yaml").hosts
    assert {one.name for one in hosts} == {name for name, row in rows.items() if row["usable"]}
    assert {one.address for one in hosts} >= {"all", "ungrouped", "yes", "null", "1e3"}
    assert not {"we ird", "{{x}}", "-oProxyCommand=x"} & {one.address for one in hosts}
    assert all("; " in row["about"] for row in rows.values() if not row["usable"])
    assert sum(not row["usable"] for row in rows.values()) >= 3
    assert "warning" not in fleet(tmp_path, "config", "check", "x/inventories/boards.yaml").stderr


def test_nothing_is_overwritten_and_nothing_is_left_half(tmp_path: Path) -> None:
    (tmp_path / "a" / "playbooks").mkdir(parents=True)
    (tmp_path / "a" / "playbooks" / "boards.yaml").write_text("mine")
    done = fleet(tmp_path, "init", "a", "10.0.0.7")
    assert done.returncode == 2
    assert "a/playbooks/boards.yaml exists already" in done.stderr
    assert tree(tmp_path / "a") == ["playbooks", "playbooks/boards.yaml"]
    (tmp_path / "file").write_text("")
    assert fleet(tmp_path, "init", "file/x", "10.0.0.7").returncode == 2
    long = fleet(tmp_path, "init", "y" * 300, "10.0.0.7")
    assert (long.returncode, "Traceback" in long.stderr) == (2, False)


def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a" / "inventories").mkdir(parents=True)
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "a" / "inventories" / ".boards.yaml.part").symlink_to("../../precious")
    (tmp_path / "a" / "README.md").symlink_to("../nowhere")
    done = fleet(tmp_path, "init", "a", "10.0.0.7")
    assert "a/README.md exists already" in done.stderr
    (tmp_path / "a" / "README.md").unlink()
    assert fleet(tmp_path, "init", "a", "10.0.0.7").returncode == 0
    assert (tmp_path / "precious").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


class Late(dict[Path, str]):
    """Files to write; another process makes the last one while the first is written."""

    def items(self):  # type: ignore[no-untyped-def]  # noqa: ANN201
        for number, pair in enumerate(super().items()):
            if number == 1:
                list(self)[-1].write_text("theirs")
            yield pair


def test_a_file_that_appears_meanwhile_is_kept_and_ours_go(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    with pytest.raises(InputError, match="theirs exists already"):
        write_all(Late({tmp_path / "new" / "deep" / "ours": "1", theirs: "2"}))
    assert theirs.read_text() == "theirs"
    assert tree(tmp_path) == ["theirs"]


def test_a_folder_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write"):
        write_all({tmp_path / "a" / "b" / "ours": "1", tmp_path / "c" / ("d" * 300) / "x": "2"})
    assert tree(tmp_path) == []


def test_an_address_in_the_place_of_the_folder_is_told(tmp_path: Path) -> None:
    for text in ("ubuntu@10.0.0.7", "10.0.0.7", "[::1]:22", "evk-01:2222"):
        done = fleet(tmp_path, "init", text)
        assert done.returncode == 2, text
        assert "fleet init . " in done.stderr
        assert tree(tmp_path) == []


def test_commands_to_type_are_quoted(tmp_path: Path) -> None:
    done = fleet(tmp_path, "init", "my $(boards)", "10.0.0.7")
    assert "next: cd 'my $(boards)' && fleet trust all" in done.stderr
    assert fleet(tmp_path, "init", "x", "10.0.0.7", "--name=_x").returncode == 2


def test_a_device_that_does_not_answer_is_written_all_the_same(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    done = fleet(tmp_path, "init", "x", f"127.0.0.1:{port}", "--probe")
    assert done.returncode == 0, done.stderr
    assert "127.0.0.1 did not answer: " in done.stderr
    assert "did not connect" in (tmp_path / "x/inventories/boards.yaml").read_text()
    assert not list(tmp_path.rglob("*known_hosts*"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-oProxyCommand=x",
        "a b",
        "u@",
        "h:0",
        "h:99999",
        "h:x",
        "a@b@c",
        "{{x}}",
        "*",
        "evk-?",
        "!x",
    ],
)
def test_what_is_no_address_is_refused(tmp_path: Path, text: str) -> None:
    done = fleet(tmp_path, "init", "x", "--", text)
    assert done.returncode == 2
    assert not (tmp_path / "x").exists()
    assert "Traceback" not in done.stderr


@settings(max_examples=150)
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30), max_size=5)
)
def test_any_name_comes_back_from_the_file(tmp_path: Path, names: list[str]) -> None:
    seen = unique(
        tried(
            FoundDevice(
                safe_name(name), name, {"host": name, "labels": {"said": name}}, facts={"a": name}
            )
        )
        for name in names
    )
    hosts = {one.name: (one.address, one.labels.get("said")) for one in read_back(seen)}
    assert hosts == {one.name: (one.values["host"],) * 2 for one in seen if one.usable}


@pytest.mark.parametrize("end", ["\x85", "\u2028", "\u2029", "\r", "\n"])
def test_what_a_device_says_ends_no_comment(end: str) -> None:
    said = FoundDevice("a", "given", {"host": "a"}, facts={"board": f"x{end}    evil: {{}}"})
    assert [host.name for host in read_back([said])] == ["a"]


@settings(max_examples=150)
@given(
    st.from_regex(r"[a-z_][a-z0-9_-]{0,9}", fullmatch=True),
    st.ip_addresses() | st.from_regex(r"[a-z][a-z0-9.-]{0,9}[a-z]", fullmatch=True),
    st.integers(1, 65535),
)
def test_any_address_comes_back_from_the_file(user: str, host: object, port: int) -> None:
    text = f"[{host}]" if ":" in str(host) else str(host)
    (back,) = read_back([from_address(f"{user}@{text}:{port}")])
    assert (back.user, back.address, back.port) == (user, str(host), port)


def adb_says(server: socket.socket, answer: bytes) -> None:
    """A server that answers one `devices -l`; a connection without a question is a look."""
    with contextlib.suppress(OSError):
        while True:
            peer, _ = server.accept()
            with peer:
                if peer.recv(64) == b"000ehost:devices-l":
                    peer.sendall(b"OKAY" + f"{len(answer):04x}".encode() + answer)
                    return


def test_phones_of_an_adb_server_that_runs_are_taken() -> None:
    answer = (
        b"8A1X device usb:1-4 product:p model:Pixel_9 transport_id:1\n"
        b"B2 unauthorized usb:1-5 transport_id:2\n"
        b"0123456789ABCDEF device usb:1-6 model:Clone transport_id:3\n"
        b"0123456789ABCDEF device usb:1-7 model:Clone transport_id:4\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=adb_says, args=(server, answer), daemon=True)
        thread.start()
        found = adb_devices(f"127.0.0.1:{server.getsockname()[1]}")
        thread.join(10)
    assert found == [
        ("8A1X", "device", "Pixel_9"),
        ("B2", "unauthorized", ""),
        ("usb:1-6", "device", "Clone"),
        ("usb:1-7", "device", "Clone"),
    ]


def test_a_phone_that_is_not_ready_is_a_comment() -> None:
    text = inventory_text([FoundDevice("B2", "adb", {"serial": "B2"}, usable=False)])
    assert "    # B2:" in text


def test_the_phones_of_a_lab_come_with_its_adb_server(tmp_path: Path) -> None:
    folder = LabFolder(tmp_path / ".lab")
    folder.root.mkdir()
    phone = Board(
        "phone001", "phone", "sm8650", 24002, "shell", "/data", "", serial="127.0.0.1:24002"
    )
    folder.write_state(
        {
            "pid": os.getpid(), "started": start_ticks(os.getpid()), "boards": [],
            "phones": [phone], "adb_server": "127.0.0.1:24003",
        }
    )  # fmt: skip
    (found,) = read_back(_boards(folder.root))
    assert (found.name, found.transport) == ("phone001", "adb")
    assert (found.serial, found.adb_server) == ("127.0.0.1:24002", "127.0.0.1:24003")


def test_without_an_adb_server_there_are_no_phones() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert adb_devices(f"127.0.0.1:{port}") == []
