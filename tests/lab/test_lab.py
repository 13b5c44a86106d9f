"""Lab boards through the real ssh client: what they are, what faults do, and what stays."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fleet.lab import Lab, LabPhones
from fleet.lab.folder import LabFolder, start_ticks
from fleet.lab.lab import FAULTS
from fleet.lab.namespace import is_apart
from fleet.lab.process import free_port
from fleet.lab.profiles import profile
from fleet.model.errors import InputError, LabError


def ssh(lab: Lab, name: str, command: str) -> subprocess.CompletedProcess[str]:
    argv = ["ssh", "-F", str(lab.folder.root / "ssh_config"), "-o", "BatchMode=yes", name, command]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


def said(lab: Lab, name: str, command: str) -> str:
    done = ssh(lab, name, command)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_board_looks_like_the_real_one(lab: Lab) -> None:
    assert said(lab, "lab001", "hostname") == "lab001"
    assert said(lab, "lab001", "cat /sys/devices/soc0/soc_id") == "676"
    tree = said(lab, "lab001", "tr '\\0' ' ' < /sys/firmware/devicetree/base/compatible")
    assert tree.split()[1] == "qcom,qcs9075"
    assert "fastrpc" in said(lab, "lab001", "id -Gn")
    assert said(lab, "lab001", "stat -c '%a %U:%G' /dev/fastrpc-cdsp") == "660 root:fastrpc"
    assert "emulated: true" in said(lab, "lab001", "cat /etc/fleet-lab-board")
    assert lab.board("lab001").upper == "disk"


def test_boards_are_apart(lab: Lab) -> None:
    said(lab, "lab001", "echo mine > ~/note")
    assert ssh(lab, "lab002", "cat ~/note").returncode == 1
    keys = {board.host_key for board in lab.boards}
    assert len(keys) == 2
    seen = ssh(lab, "lab002", f"ls {lab.folder.root}")
    assert seen.returncode != 0, "the host's files are not seen"


def test_nothing_enters_a_process_that_has_the_root_of_the_workstation(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What a lab is told to do to a board must never happen to the workstation."""
    board = lab.board("lab001")
    assert is_apart(board.pid)
    board.pid = os.getpid()
    monkeypatch.setattr(lab, "board", lambda name: board)
    with pytest.raises(LabError, match="is not running"):
        lab.exec("lab001", ["touch", str(tmp_path / "here")])
    assert not (tmp_path / "here").exists()


def test_password_and_sudo(lab: Lab) -> None:
    password = lab.folder.password
    assert len(password) > 8
    command = f"echo {password} | sudo -S -p '' id -u"
    assert said(lab, "lab001", command) == "0"
    assert ssh(lab, "lab001", "sudo -k; echo wrong | sudo -S -p '' id -u").returncode == 1
    assert (lab.folder.root / "password").stat().st_mode & 0o077 == 0


def test_power_cycle_keeps_files_and_changes_the_boot_id(lab: Lab) -> None:
    said(lab, "lab001", "echo kept > ~/kept; touch /dev/shm/gone")
    before = said(lab, "lab001", "cat /proc/sys/kernel/random/boot_id")
    lab.power_cycle("lab001")
    assert said(lab, "lab001", "cat ~/kept; ls /dev/shm") == "kept"
    assert said(lab, "lab001", "cat /proc/sys/kernel/random/boot_id") != before


def test_reset_makes_it_as_new(lab: Lab) -> None:
    said(lab, "lab002", "echo x > ~/junk")
    lab.reset("lab002")
    assert said(lab, "lab002", "ls ~") == ""


def test_power_off_and_on(lab: Lab) -> None:
    lab.power_off("lab002")
    assert not lab.board("lab002").running
    assert ssh(lab, "lab002", "true").returncode == 255
    lab.power_cycle("lab002")
    assert said(lab, "lab002", "echo back") == "back"
    assert lab.board("lab002").running


@pytest.mark.parametrize(
    ("fault", "command", "words"),
    [
        ("node-root-only", ": < /dev/fastrpc-cdsp", "Permission denied"),
        ("no-node", ": < /dev/fastrpc-cdsp", "No such file"),
        ("full-disk", "echo more > ~/fleet/x", "No space left on device"),
        ("read-only", "touch ~/fleet/x", "Read-only file system"),
        ("no-python3", "python3 -V", "not found"),
        ("no-hash-tool", "sha256sum /etc/hostname", "not found"),
    ],
)
def test_faults_change_the_board_and_real_tools_complain(
    lab: Lab, fault: str, command: str, words: str
) -> None:
    assert words not in ssh(lab, "lab001", command).stderr
    lab.fault("lab001", fault)
    try:
        broken = ssh(lab, "lab001", command)
        assert broken.returncode != 0
        assert words in broken.stderr
    finally:
        lab.heal("lab001", fault)
    assert words not in ssh(lab, "lab001", command).stderr


def test_wrong_soc_and_left_group(lab: Lab) -> None:
    lab.fault("lab001", "wrong-soc")
    assert said(lab, "lab001", "cat /sys/devices/soc0/soc_id") == "9999"
    lab.heal("lab001", "wrong-soc")
    assert said(lab, "lab001", "cat /sys/devices/soc0/soc_id") == "676"
    lab.fault("lab001", "left-group")
    assert "fastrpc" not in said(lab, "lab001", "id -Gn")
    lab.heal("lab001", "left-group")


def test_every_fault_heals(lab: Lab) -> None:
    for name, fault in FAULTS.items():
        laid = "npu" in fault.needs or "fleet/current" in fault.needs  # tests/doctor has those
        if not fault.bare and not laid:
            lab.fault("lab002", name)
            lab.heal("lab002", name)
    assert "fastrpc" in said(lab, "lab002", "id -Gn")
    assert said(lab, "lab002", "python3 -c 'print(1)'; : < /dev/fastrpc-cdsp") == "1"


def test_a_reflashed_board_has_a_new_key_until_it_heals(lab: Lab) -> None:
    pins = lab.folder.known_hosts.read_text()
    lab.fault("lab002", "new-host-key")
    try:
        assert lab.folder.known_hosts.read_text() == pins
        done = ssh(lab, "lab002", "true")
        assert done.returncode == 255
        assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in done.stderr
    finally:
        lab.heal("lab002", "new-host-key")
    assert said(lab, "lab002", "echo fine") == "fine"
    assert lab.folder.known_hosts.read_text() == pins


def test_a_board_has_no_capability_over_the_workstation(lab: Lab) -> None:
    """Looked at, never tried: the clock is the one of the workstation."""
    names = Path("/usr/include/linux/capability.h")
    number = 25  # CAP_SYS_TIME
    if names.is_file():
        assert "#define CAP_SYS_TIME         25" in names.read_text("utf-8")
    look = "grep ^Cap /proc/self/status"
    as_root = f"echo {lab.folder.password} | sudo -S -p '' {look}"
    texts = {
        "exec": lab.exec("lab001", ["sh", "-c", look]).stdout,
        "pid 1": lab.exec("lab001", ["grep", "^Cap", "/proc/1/status"]).stdout,
        "ssh": said(lab, "lab001", as_root),
    }
    for way, text in texts.items():
        sets = {key: int(value, 16) for key, value in (row.split(":") for row in text.splitlines())}
        assert set(sets) == {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"}, way
        assert not any(held >> number & 1 for held in sets.values()), way
        assert sets["CapEff"] >> 21 & 1, f"{way}: faults mount file systems (CAP_SYS_ADMIN)"


def test_unknown_words_are_refused_with_the_known_ones(lab: Lab, tmp_path: Path) -> None:
    for word in ("profile", "kind"):
        with pytest.raises(LabError) as caught:
            Lab.up(tmp_path, **{word: "no-such"})  # type: ignore[arg-type]
        assert "," in caught.value.hint
    with pytest.raises(InputError, match="'no-such' is not a fault of lab001"):
        lab.fault("lab001", "no-such")
    with pytest.raises(LabError, match="no board"):
        lab.power_cycle("lab999")


def test_up_twice_is_one_lab(lab: Lab) -> None:
    again = Lab.up(lab.folder.root, count=2, kind="namespace", base_port=0)
    assert [b.port for b in again.boards] == [b.port for b in lab.boards]
    with pytest.raises(LabError, match="is already running"):
        Lab.up(lab.folder.root, count=3, kind="namespace")


def test_down_leaves_nothing(namespaces: None, tmp_path: Path) -> None:
    lab = Lab.up(tmp_path / "lab", count=1, kind="namespace", base_port=0)
    (board,) = lab.boards
    state = lab.folder.read_state()
    assert state is not None
    lab.close()
    assert start_ticks(board.pid) == ""
    assert start_ticks(state["pid"]) == ""
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
    with pytest.raises(LabError, match="no lab is running"):
        _ = lab.boards


def test_a_folder_that_cannot_be_a_layer(namespaces: None, tmp_path: Path) -> None:
    """The lab folder on an overlayfs, as in a container: the boards live in memory and say so."""
    parts = [tmp_path / name for name in ("lower", "upper", "work", "merged")]
    for part in parts:
        part.mkdir()
    lower, upper, work, merged = parts
    layers = f"lowerdir={lower},upperdir={upper},workdir={work}"
    subprocess.run(
        ["mount", "-t", "overlay", "overlay", "-o", layers, str(merged)], check=True, timeout=20
    )
    try:
        with Lab.up(merged / "lab", count=1, kind="namespace", base_port=0) as lab:
            assert lab.boards[0].upper == "memory"
            assert said(lab, "lab001", "echo x > ~/note; cat ~/note") == "x"
    finally:
        subprocess.run(["umount", str(merged)], check=True, timeout=20)


def test_a_stale_state_kills_nobody(tmp_path: Path) -> None:
    folder = LabFolder(tmp_path)
    victim = subprocess.Popen(["sleep", "60"])
    try:
        folder.state_file.write_text(
            json.dumps({"pid": victim.pid, "started": "1", "boards": [], "control": "/none"})
        )
        Lab(folder).close()
        assert victim.poll() is None
        assert not folder.state_file.exists()
    finally:
        victim.kill()
        victim.wait()


@pytest.mark.parametrize(("count", "phones", "option"), [(2, 0, "--port"), (0, 2, "--phone-port")])
def test_a_port_in_use_is_named_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, phones: int, option: str
) -> None:
    monkeypatch.setenv("FLEET_CACHE", str(tmp_path / "cache"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        first = port - 1
        asked = LabPhones(phones, port=first)
        with pytest.raises(LabError, match=f"port {port} of this workstation, but") as caught:
            Lab.up(tmp_path / "lab", count=count, base_port=first, phones=asked)
    assert f"choose another port with {option}," in caught.value.hint
    assert not (tmp_path / "cache").exists()


def test_two_labs_need_no_options_and_keep_their_ports(tmp_path: Path) -> None:
    def ports(lab: Lab) -> list[int]:
        return [device.port for device in (*lab.boards, *lab.phones)]

    def up(name: str) -> Lab:
        phones = LabPhones(1, kind="phone-emulator")
        return Lab.up(tmp_path / name, count=2, kind="user", phones=phones)

    with (
        up("a") as one,
        up("b") as other,
    ):
        first, server = ports(one), one.adb_server
        assert len({*first, *ports(other)}) == 6
    with up("a") as again:
        assert (ports(again), again.adb_server) == (first, server)


def test_a_lab_that_another_process_boots_is_waited_for(tmp_path: Path) -> None:
    """As after `make demo` was killed while its lab booted, and typed again."""
    with ThreadPoolExecutor(2) as pool:
        labs = list(pool.map(lambda _: Lab.up(tmp_path, count=1, kind="user"), range(2)))
    try:
        assert labs[0].boards == labs[1].boards
    finally:
        for lab in labs:
            lab.close()


def test_a_key_that_was_half_made_is_made_again(tmp_path: Path) -> None:
    folder = LabFolder(tmp_path)
    (tmp_path / "id_ed25519.pub").write_text("ssh-ed25519 half")
    (tmp_path / "id_ed25519.part").write_text("-----BEGIN")
    folder.prepare()
    done = subprocess.run(
        ["ssh-keygen", "-y", "-f", folder.identity_file], capture_output=True, text=True, check=True
    )
    public = folder.identity_file.with_suffix(".pub").read_text().strip()
    assert f"{done.stdout.strip()} fleet-lab" == public
    assert folder.identity_file.stat().st_mode & 0o077 == 0


def test_user_boards(user_lab: Lab) -> None:
    first, second = user_lab.boards
    assert first.kind == "user"
    root = said(user_lab, first.name, 'echo "$FLEET_SYSROOT"')
    assert said(user_lab, first.name, f"cat '{root}/sys/devices/soc0/soc_id'") == "676"
    homes = {said(user_lab, b.name, 'echo "$FLEET_BOARD_HOME"') for b in (first, second)}
    assert homes == {first.home, second.home}
    with pytest.raises(LabError, match="started the lab without root"):
        user_lab.fault(first.name, "no-node")


def test_profiles_are_what_real_boards_show() -> None:
    found = profile("iq9075")
    assert found.sys["firmware/devicetree/base/compatible"].endswith(b"qcom,sa8775p\0")
    assert found.sys["devices/soc0/soc_id"] == b"676\n"
    assert "fastrpc-cdsp-secure" in found.nodes


def test_the_kernel_gives_a_free_port_to_nobody_else() -> None:
    given = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first, last = map(int, given.read_text("utf-8").split()) if given.exists() else (0, 0)
    if first <= 32767:
        pytest.skip(f"this machine gives away ports from {first} to {last}")
    found = {free_port(0, "port") for _ in range(20)}
    assert not found & set(range(first, last + 1)), "a connection of anybody could get it"
    assert len(found) > 10


def test_an_order_that_was_cut_does_not_end_the_lab(tmp_path: Path) -> None:
    with Lab.up(tmp_path / "lab", count=0) as lab:
        state = lab.folder.read_state()
        assert state is not None
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(state["control"])
            control.sendall(b'{"do": "of')
        with pytest.raises(LabError, match="nobody"):
            lab._tell(do="off", name="nobody")
