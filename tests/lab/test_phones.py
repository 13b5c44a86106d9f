"""Lab phones through the real adb program: what they are, and what faults do."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.lab import Lab, LabPhones
from fleet.lab.adbserver import adb_program
from fleet.lab.profiles import phone_profile, phone_profiles
from fleet.model.deadline import Deadline
from fleet.model.errors import LabError


class Adb:
    """The adb program against the lab's own server."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.env = {**os.environ, "HOME": str(lab.folder.root)}
        self.env.pop("ADB_SERVER_SOCKET", None)

    def __call__(self, *words: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        argv = [adb_program(), "-P", self.lab.adb_server.rpartition(":")[2], *words]
        return subprocess.run(
            argv, capture_output=True, text=True, check=False, timeout=seconds, env=self.env
        )

    def on(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self("-s", self.lab.board(name).serial, *words)

    def state(self, name: str, wanted: str) -> None:
        """Wait until `adb devices` shows that state.

        A connection that `adb connect` found still open may have been on its way out.
        """
        deadline, pause = Deadline(20), threading.Event()
        serial = self.lab.board(name).serial
        while f"{serial}\t{wanted}" not in (seen := self("devices").stdout):
            assert not deadline.expired, seen
            pause.wait(0.05)
            if serial not in seen:
                self.connect(name)

    def connect(self, name: str) -> str:
        return self("connect", self.lab.board(name).serial).stdout


@pytest.fixture(scope="module", params=["phone", "phone-emulator"])
def adb(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adb]:
    if request.param == "phone":
        request.getfixturevalue("namespaces")
    root = tmp_path_factory.mktemp("lab")
    with Lab.up(
        root,
        count=0,
        phones=LabPhones(2, "sm8650,qcs8550", request.param),
        base_port=0,
    ) as lab:
        yield Adb(lab)


def test_a_phone_looks_like_one(adb: Adb) -> None:
    assert "connected" in adb.connect("phone001")
    adb.connect("phone002")
    adb.state("phone001", "device")
    shell = "getprop ro.soc.model; getprop ro.none fallback; getenforce; uname -m"
    done = adb.on("phone001", "shell", shell)
    assert done.stdout.split() == ["SM8650", "fallback", "Enforcing", "aarch64"]
    assert adb.on("phone002", "shell", "getprop ro.product.model").stdout.strip() == "AYN Thor"
    assert "[ro.serialno]: [PHONE001]" in adb.on("phone001", "shell", "getprop").stdout
    assert "level: 86" in adb.on("phone001", "shell", "dumpsys battery").stdout


def test_streams_and_status_are_kept_apart(adb: Adb) -> None:
    adb.connect("phone001")
    done = adb.on("phone001", "shell", "echo out; echo err >&2; exit 5")
    assert (done.returncode, done.stdout, done.stderr) == (5, "out\n", "err\n")


def test_push_and_pull_keep_every_byte(adb: Adb, tmp_path: Path) -> None:
    adb.connect("phone001")
    source = tmp_path / "source"
    source.write_bytes(os.urandom(3_000_001))
    there = "/data/local/tmp/pushed"
    if adb.lab.board("phone001").kind == "phone-emulator":
        there = str(tmp_path / "there" / "pushed")
    assert adb.on("phone001", "push", str(source), there).returncode == 0
    assert adb.on("phone001", "pull", there, str(tmp_path / "back")).returncode == 0
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    refused = adb.on("phone001", "push", str(source), "/proc/none/such")
    assert refused.returncode != 0


def test_offline_and_back(adb: Adb) -> None:
    adb.connect("phone002")
    adb.lab.fault("phone002", "offline")
    adb.state("phone002", "offline")
    assert not adb.lab.board("phone002").running
    adb.lab.heal("phone002", "offline")
    serial = adb.lab.board("phone002").serial
    assert f"{serial}\tdevice" in adb("devices").stdout, "nobody connects it by hand"


def test_cut_breaks_what_runs_and_the_phone_comes_back(adb: Adb) -> None:
    adb.connect("phone001")
    argv = [adb_program(), "-P", adb.lab.adb_server.rpartition(":")[2], "-s"]
    argv += [adb.lab.board("phone001").serial, "shell", "echo here; sleep 60"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=adb.env) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"here\n"
        adb.lab.fault("phone001", "cut")
        running.wait(30)  # with status 0: adb 29 takes a broken stream for a good end
    adb("disconnect", adb.lab.board("phone001").serial)
    deadline, pause = Deadline(20), threading.Event()
    while "hello" not in (said := adb.on("phone001", "shell", "echo hello").stdout):
        assert not deadline.expired, said
        adb.connect("phone001")
        pause.wait(0.1)


def test_blackhole_is_still_listed_as_device(adb: Adb) -> None:
    adb.connect("phone002")
    adb.state("phone002", "device")
    adb.lab.fault("phone002", "blackhole")
    with pytest.raises(subprocess.TimeoutExpired):
        adb("-s", adb.lab.board("phone002").serial, "shell", "true", seconds=2)
    assert f"{adb.lab.board('phone002').serial}\tdevice" in adb("devices").stdout
    adb.lab.heal("phone002", "blackhole")
    assert adb.on("phone002", "shell", "echo again").stdout == "again\n"


def test_a_full_disk_says_so(adb: Adb, tmp_path: Path) -> None:
    if adb.lab.board("phone001").kind == "phone-emulator":
        with pytest.raises(LabError, match="started the lab without root"):
            adb.lab.fault("phone001", "full-data")
        return
    adb.connect("phone001")
    source = tmp_path / "source"
    source.write_bytes(bytes(3_000_000))
    adb.lab.fault("phone001", "full-data")
    done = adb.on("phone001", "push", str(source), "/data/local/tmp/fleet/file")
    assert "No space left on device" in done.stdout + done.stderr
    adb.lab.heal("phone001", "full-data")
    for fault in ("noexec-storage", "selinux-refusal"):
        adb.lab.fault("phone001", fault)
        script = "cd /data/local/tmp/fleet && cp /system/bin/toybox t && chmod 755 t && ./t true"
        done = adb.on("phone001", "shell", script)
        assert done.returncode == 126
        assert "denied" in done.stderr.lower()
        said = adb.on("phone001", "shell", "logcat").stdout
        assert ("avc: denied" in said) == (fault == "selinux-refusal")
        adb.lab.heal("phone001", fault)


@pytest.mark.parametrize("manner", ["unauthorized", "recovery", "old-features", "asks"])
def test_states_that_only_the_emulator_shows(adb: Adb, manner: str) -> None:
    if adb.lab.board("phone002").kind == "phone":
        with pytest.raises(LabError, match="a real adbd, which cannot"):
            adb.lab.fault("phone002", manner)
        return
    serial = adb.lab.board("phone002").serial
    adb.lab.fault("phone002", manner)
    adb("disconnect", serial)
    adb.connect("phone002")
    adb.state("phone002", {"old-features": "device", "asks": "device"}.get(manner, manner))
    if manner == "old-features":
        assert "shell_v2" not in adb("-s", serial, "features").stdout
    adb.lab.heal("phone002", manner)
    adb("disconnect", serial)
    adb.connect("phone002")
    adb.state("phone002", "device")


def test_a_phone_is_root_only_through_the_lab(adb: Adb) -> None:
    if adb.lab.board("phone001").kind == "phone-emulator":
        with pytest.raises(LabError, match="started the lab without root"):
            adb.lab.exec("phone001", ["id"])
        return
    assert adb.lab.exec("phone001", ["id", "-u"]).stdout == "0\n"
    adb.connect("phone001")
    assert adb.on("phone001", "shell", "id -u").stdout == "2000\n"
    assert adb.on("phone001", "shell", "echo x > /vendor/lib64/x").returncode != 0
    seen = adb.on("phone001", "shell", f"ls {adb.lab.folder.root}")
    assert seen.returncode != 0, "the host's files are not seen"


def test_power_cycle_and_reset(adb: Adb) -> None:
    home = adb.lab.board("phone001").home
    adb.connect("phone001")
    before = adb.on("phone001", "shell", "cat /proc/sys/kernel/random/boot_id").stdout
    adb.on("phone001", "shell", f"echo kept > {home}/kept")
    adb.lab.power_cycle("phone001")
    adb("disconnect", adb.lab.board("phone001").serial)
    adb.connect("phone001")
    adb.state("phone001", "device")
    assert adb.on("phone001", "shell", f"cat {home}/kept").stdout == "kept\n"
    if adb.lab.board("phone001").kind == "phone":
        after = adb.on("phone001", "shell", "cat /proc/sys/kernel/random/boot_id").stdout
        assert after != before
    adb.lab.reset("phone001")
    adb("disconnect", adb.lab.board("phone001").serial)
    adb.connect("phone001")
    adb.state("phone001", "device")
    assert adb.on("phone001", "shell", f"cat {home}/kept").returncode != 0


def test_every_profile_names_its_source() -> None:
    assert {"sm8450", "sm8550", "sm8650", "sm8750", "qcs6490", "qcs8550"} <= set(phone_profiles())
    for name in phone_profiles():
        assert phone_profile(name).source
    with pytest.raises(LabError, match="no lab phone profile"):
        phone_profile("nothing")


def test_the_lab_ends_its_own_adb_server(tmp_path: Path) -> None:
    with Lab.up(
        tmp_path / "lab", count=0, phones=LabPhones(1, kind="phone-emulator"), base_port=0
    ) as lab:
        adb = Adb(lab)
        port = lab.adb_server.rpartition(":")[2]
        assert adb("devices").returncode == 0
    listening = Path("/proc/net/tcp").read_text("utf-8")
    assert f":{int(port):04X} 00000000:0000 0A" not in listening
