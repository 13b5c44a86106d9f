"""The probe for real, under every POSIX shell of this machine, on trees that imitate boards."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fleet.device.call import runs_worker
from fleet.device.texts import path_of
from fleet.facts.gather import gather, short_source, source
from fleet.facts.parse import parse
from fleet.facts.view import summary
from fleet.lab.profiles import profile
from fleet.model.deadline import Deadline
from fleet.model.errors import DeviceError
from fleet.model.facts import Facts
from fleet.model.inventory import Host
from fleet.model.plain import to_plain
from fleet.transport import transport_for
from tests import needs

PROBE = path_of("probe.sh")
SHELLS = ("dash", "bash", "busybox", "mksh")


def argv_of(shell: str) -> list[str]:
    found = needs.tool(shell)
    return [found, "sh"] if shell == "busybox" else [found]


def probe(
    shell: str,
    root: Path | None = None,
    base: str = "",
    prefix: tuple[str, ...] = (),
    text: str = "",
    **env: str,
) -> Facts:
    full = {**os.environ, **env}
    if root is not None:
        full["FLEET_SYSROOT"] = str(root)
    done = subprocess.run(
        [*prefix, *argv_of(shell), "-c", text or PROBE.read_text(), "fleet", base],
        capture_output=True,
        text=True,
        env=full,
        check=False,
        timeout=60,
    )
    assert done.stderr == ""
    return parse(done.stdout)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "root with space"
    profile("iq9075").write(root)
    (root / "dev" / "dma_heap").mkdir(parents=True)
    for name in ("fastrpc-cdsp", "fastrpc-cdsp-secure", "dma_heap/system"):
        (root / "dev" / name).touch()
        (root / "dev" / name).chmod(0o660)
    (root / "etc").mkdir()
    (root / "usr" / "lib").mkdir(parents=True)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.geteuid() and str(parent) not in {"/", "/tmp"}:
            parent.chmod(parent.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
    return root


@pytest.mark.parametrize("shell", SHELLS)
def test_an_iq9075(shell: str, tree: Path) -> None:
    facts = probe(shell, tree)
    soc = facts.soc
    assert (soc.chip, soc.soc_model, soc.hexagon_arch, soc.vtcm_mb) == ("QCS9075", 77, "v73", 8)
    assert (soc.kernel_soc_id, soc.source) == (676, "soc_id")
    assert soc.compatible == ("qcom,qcs9075-addons-iq-9075-evk", "qcom,qcs9075", "qcom,sa8775p")
    assert soc.model == "Qualcomm Technologies, Inc. Lemans EVK"
    assert ("cdsp", "running") in facts.remoteproc
    assert facts.thermal[0].celsius == pytest.approx(41.3)
    assert facts.libcdsprpc == ()
    assert facts.libcdsprpc_unversioned is False
    assert facts.emulated == (os.uname().machine == "x86_64")
    assert not facts.lab


@pytest.mark.parametrize("shell", SHELLS)
def test_the_short_probe_says_the_same_of_what_bringing_files_needs(
    shell: str, tree: Path, tmp_path: Path
) -> None:
    base = str(tmp_path / "not there" / "fleet")
    whole = probe(shell, tree, base, HOME="/root")
    short = probe(shell, tree, base, text=short_source(), HOME="/root")
    for name in ("base_dir", "store", "machine", "machine_id", "serial_number", "boot_id", "lab"):
        assert getattr(short, name) == getattr(whole, name), name
    assert short.disk.path == whole.disk.path
    assert short.disk.mount == whole.disk.mount
    assert short.disk.writable
    assert short.disk.available_bytes
    for name in ("sha256", "dd_fullblock", "find_printf", "sync_file", "tar", "gzip"):
        assert getattr(short.tools, name) == getattr(whole.tools, name), name
    assert runs_worker(short) == runs_worker(whole)
    assert (short.libc, short.nodes, short.thermal) == (None, (), ())
    assert len(short_source()) < len(source()) * 2 / 3


@pytest.mark.parametrize("lacks", ["", "hashlib", "threading"])
def test_a_python_without_its_library_takes_no_blobs(tmp_path: Path, lacks: str) -> None:
    """Yocto's python3-core; the full probe asks Python, the short one looks for the files."""
    library = tmp_path / "lib" / "python3.11"
    library.mkdir(parents=True)
    for name in {"hashlib", "threading"} - {lacks}:
        (library / f"{name}.py").touch()
    (tmp_path / "bin").mkdir()
    hide = f"import sys; sys.modules['{lacks}'] = None\n" if lacks else ""
    for name in ("python3", "python3.11"):
        (tmp_path / "bin" / name).write_text(
            f"#!/bin/sh\nshift 2; code=$1; shift\n"
            f'exec {sys.executable} -ISu -c "{hide}$code" "$@"\n'
        )
        (tmp_path / "bin" / name).chmod(0o755)
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    short, whole = probe("dash", text=short_source(), PATH=path), probe("dash", PATH=path)
    assert short.tools.python3 == f"{tmp_path}/bin/python3"
    assert whole.tools.python3 == sys.executable
    assert (runs_worker(short), runs_worker(whole)) == (lacks == "", lacks == "")


@pytest.mark.parametrize("names", [[], ["python3.11"], ["python3.6"], ["python3.6", "python3.12"]])
def test_python_is_told_by_its_name_where_that_is_plain(tmp_path: Path, names: list[str]) -> None:
    for name in ["python3", *names]:
        (tmp_path / name).write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    tools = probe("dash", text=short_source(), PATH=path).tools
    if len(names) == 1:
        assert (tools.python3, tools.python3_version) == (f"{tmp_path}/python3", names[0][6:])
        assert runs_worker(probe("dash", text=short_source(), PATH=path)) == (
            names[0] != "python3.6"
        )
    else:
        told = ".".join(map(str, sys.version_info[:3]))
        assert (tools.python3, tools.python3_version) == (sys.executable, told)


@pytest.mark.parametrize("shell", SHELLS)
def test_this_machine(shell: str) -> None:
    facts = probe(shell)
    uname = os.uname()
    assert (facts.machine, facts.kernel, facts.hostname) == (
        uname.machine,
        uname.release,
        uname.nodename,
    )
    assert facts.user.uid == os.geteuid()
    assert facts.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert facts.libc == "glibc"
    assert facts.memory_bytes
    assert facts.uptime_s
    assert facts.uptime_s > 0
    assert facts.tools.sha256
    assert facts.tools.dd_fullblock
    assert facts.tools.sync_file
    assert facts.disk.available_bytes
    assert facts.disk.writable


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("python", [True, False])
def test_a_true_open_as_an_ordinary_user(shell: str, python: bool, tree: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user; root itself may open everything")
    (tree / "dev" / "fastrpc-cdsp-secure").unlink()
    (tree / "dev" / "fastrpc-gdsp0").touch(0o640)
    (tree / "dev" / "dma_heap" / "system").chmod(0o664)
    tools = tree.parent / "bin"
    tools.mkdir()
    names = ["id", "uname", "stat", "tr", "df", "getconf", "sync", "rm", "timeout", "printf", "dd"]
    for name in [*names, *(["python3"] if python else [])]:
        target = "/usr/bin/python3" if name == "python3" else shutil.which(name)
        assert target is not None
        (tools / name).symlink_to(target)
    (tools / "sh").symlink_to("/bin/sh")
    someone = (
        shutil.which("setpriv") or "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    )
    facts = probe(shell, tree, prefix=someone, PATH=str(tools), HOME="/nonexistent")
    errors = {node.path: node.open_error for node in facts.nodes}
    assert errors == {
        "/dev/fastrpc-cdsp": "EACCES",
        "/dev/fastrpc-cdsp-secure": "ENOENT",
        "/dev/dma_heap/system": "",
        "/dev/fastrpc-gdsp0": None,
    }
    assert facts.nodes[-1].mode == "640", "seen, not opened"
    assert (facts.tools.python3 is not None) == python
    first = facts.nodes[0]
    assert (first.mode, first.owner, first.exists) == ("660", "root", True)
    assert facts.disk.writable is False


@pytest.mark.parametrize("shell", SHELLS)
def test_libraries_and_paths(shell: str, tree: Path) -> None:
    (tree / "usr/lib/libcdsprpc.so.1").touch()
    (tree / "usr/lib/libQnnHtp.so").touch()
    facts = probe(shell, tree, DSP_LIBRARY_PATH="/old:/odd")
    assert facts.libcdsprpc == ("/usr/lib/libcdsprpc.so.1",)
    assert facts.libcdsprpc_unversioned is False
    assert facts.qnn_libraries == ("/usr/lib/libQnnHtp.so",)
    assert facts.dsp_library_path == "/old:/odd"
    (tree / "usr/lib/libcdsprpc.so").touch()
    assert probe(shell, tree).libcdsprpc_unversioned is True


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("base", "home", "board", "expected"),
    [
        ("", "/home/u", "", "/home/u/fleet"),
        ("~", "/home/u", "", "/home/u"),
        ("~/x y", "/home/u", "", "/home/u/x y"),
        ("/opt/fleet", "/home/u", "", "/opt/fleet"),
        ("", "/home/u", "/lab/b1", "/lab/b1/fleet"),
    ],
)
def test_base_folder(shell: str, base: str, home: str, board: str, expected: str) -> None:
    extra: dict[str, Any] = {"FLEET_BOARD_HOME": board} if board else {}
    facts = probe(shell, base=base, HOME=home, **extra)
    assert facts.base_dir == expected


def test_a_lab_board_says_so(tree: Path) -> None:
    (tree / "etc" / "fleet-lab-board").write_text("emulated: true\n")
    facts = probe("dash", tree)
    assert facts.lab
    assert facts.emulated
    assert to_plain(facts)["emulated"] is True


def test_read_only_and_full_disks(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount")
    place = tmp_path / "m"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(place)], check=True)
    try:
        facts = probe("dash", base=str(place / "fleet"))
        assert facts.disk.writable is False
        assert facts.disk.mount == str(place)
        assert facts.disk.available_bytes == 1 << 20
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_one_round_trip_and_nothing_left(tmp_path: Path) -> None:
    link = transport_for(Host("here", transport="local"))
    link.open(Deadline(5))
    host = Host("here", transport="local", base_dir=str(tmp_path / "fleet"), soc="QCS6490")
    facts = gather(link, host, Deadline(30))
    assert link.traffic.round_trips == 1
    assert facts.soc.chip == "QCS6490"
    assert list(tmp_path.iterdir()) == []
    link.close()


@pytest.mark.parametrize(
    "text",
    ["", "bash: permission denied", "fleet-facts 1\nkernel\t6.1\n", "end\nfleet-facts 1\n"],
)
def test_an_answer_that_is_not_the_probes(text: str) -> None:
    with pytest.raises(DeviceError, match="returned only a part of the output"):
        parse(text, Host("evk"))


def test_noise_before_the_answer_is_dropped() -> None:
    facts = parse("Welcome to Ubuntu\nfleet-facts 1\nkernel\t6.1\nnew-key\tx\nend\nbye\n")
    assert facts.kernel == "6.1"


def test_nothing_known_is_unknown_everywhere() -> None:
    facts = parse("fleet-facts 1\nend\n")
    assert facts.soc.chip is None
    assert facts.soc.source == "unknown"
    assert facts.disk.available_bytes is None
    rows = dict(summary(facts))
    assert rows["soc_model (QNN)"] == "unknown"
    assert rows["thermal"] == "unknown"


def test_a_group_that_this_login_does_not_have_yet_is_said() -> None:
    text = "fleet-facts 1\nid_db\tgid=1(u) groups=1(u),7(fastrpc)\nid\tuid=1(u) gid=1(u)\nend\n"
    assert "log in again" in dict(summary(parse(text)))["new groups"]


@pytest.mark.parametrize(
    "line",
    [
        "soc_id\tabc", "uptime\t", "mem_total_kb\t-", "disk_free_kb\tx", "thermal\tz", "node\t",
        "open\t", "thermal\ta\tb\tc", "python3\t", "soc_id\t" + "9" * 400, "libc\t", "uid\t1.5",
    ],
)  # fmt: skip
def test_odd_values_are_unknown(line: str) -> None:
    parse(f"fleet-facts 1\n{line}\nend\n")


@pytest.mark.parametrize("shell", SHELLS)
def test_spares_are_room(tmp_path: Path, shell: str) -> None:
    base = tmp_path / "a base"
    (base / "store").mkdir(parents=True)
    for name, size in (("1.spare", 9 << 20), ("2 2.spare", 5 << 20), ("3", 1 << 20)):
        (base / "store" / name).write_bytes(os.urandom(size))
    argv = [*argv_of(shell), "-c", PROBE.read_text(), "fleet", str(base)]
    said = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
    values = [line.split("\t") for line in said.splitlines()]
    free, spare = (
        sum(int(value[1]) for value in values if value[0] == key) * 1024
        for key in ("disk_free_kb", "disk_spare_kb")
    )
    assert 14 << 20 <= spare < 15 << 20
    found = parse(said).disk
    assert (found.available_bytes, found.recyclable_bytes) == (free, spare)
    assert found.room_bytes == free + spare


@pytest.mark.parametrize("shell", SHELLS)
def test_shells_of_the_dsp_where_libcdsprpc_looks(shell: str, tmp_path: Path) -> None:
    assert probe(shell, tmp_path).dsp_shells == ()
    places = (
        "usr/share/hexagon-dsp/sa8775p/Qualcomm/IQ9075-EVK/dsp/cdsp",
        "usr/lib/dsp",
        "usr/lib/rfsa/adsp",
    )
    for place in places:
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "fastrpc_shell_unsigned_3").touch()
    found = probe(shell, tmp_path).dsp_shells
    assert found is not None
    assert sorted(found) == sorted(f"/{place}/fastrpc_shell_unsigned_3" for place in places)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_file_mounted_over_soc_id_is_seen(shell: str, tree: Path) -> None:
    line = "77 62 0:27 {} {} rw,nosuid - tmpfs tmpfs rw\n"
    place = tree / "proc" / "self" / "mountinfo"
    place.parent.mkdir(parents=True)
    place.write_text(line.format("/x", "/sys/devices/soc0") + line.format("/", "/tmp"))
    assert not probe(shell, tree).soc.covered
    place.write_text(line.format("/fake-soc0/soc_id", "/sys/devices/soc0/soc_id"))
    assert probe(shell, tree).soc.covered


@pytest.mark.parametrize("shell", SHELLS)
def test_the_cpp_library_of_this_machine_is_seen(shell: str) -> None:
    here = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True)
    assert probe(shell).libstdcpp == ("libstdc++.so.6" in here.stdout)
