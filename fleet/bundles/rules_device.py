"""Rules about the device: C library, Python, disk, memory, FastRPC. Each yields its violations."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.bundles.rule import REFUSE, WARN, Case, Fault, install, place_of, rule, unknown
from fleet.model.facts import SHELL_FOLDERS, DeviceNode
from fleet.model.runtime import version_key
from fleet.runtimes.releases import sdk_command

_MARGIN_BYTES = 64 * 1024 * 1024  # logs, records and profiles of some hundred runs
_MARGIN_FILES = 64  # release folder, links, run folders
_MEBI = 1024 * 1024
_CDSP = "/dev/fastrpc-cdsp"
_OLD_NODE = "/dev/adsprpc-smd"  # of downstream kernels before the upstream driver


@rule("glibc-too-old", REFUSE, "runtime_files.yaml min_glibc: symbol versions, measured")
def glibc_too_old(case: Case) -> Iterator[Fault]:
    """The C library of the device is as new as the target build needs."""
    least, facts = case.target_facts.min_glibc, case.facts
    cure = "install a newer system image on the device (Ubuntu 22.04 has glibc 2.35)"
    if least is None:
        return
    if facts.libc not in {None, "glibc"}:
        yield Fault(
            f"{case.target} needs glibc, but the device has {facts.libc}",
            str(facts.libc), f"glibc {least}", cure
        )  # fmt: skip
        return
    try:
        have = version_key(facts.libc_version or "")
    except ValueError:
        yield unknown(
            "the C library of the device", f"glibc {least}", "fleet facts (reads the device again)"
        )
        return
    if have < version_key(least):
        yield Fault(
            f"glibc {facts.libc_version} of the device is too old for {case.target}",
            f"glibc {facts.libc_version}",
            f"glibc {least}",
            cure,
        )


@rule("libatomic-missing", REFUSE, "docs/sources/deployment.md 2: getQnnSystemInterface FAILED; "
      "measured")  # fmt: skip
def libatomic_missing(case: Case) -> Iterator[Fault]:
    """libatomic.so.1 is on the device: libQnnSystem of Linux targets needs it."""
    if case.target_facts.os != "linux" or case.facts.libatomic is not False:
        return
    yield Fault(
        "libQnnSystem needs libatomic.so.1, but the device does not have it: no NPU session "
        "would open",
        "no libatomic.so.1",
        "libatomic.so.1",
        install(case.facts, "libatomic1", "libatomic.so.1"),
    )


@rule("libstdcpp-missing", REFUSE, "fleet/data/runtime_files.yaml needs_on_device: readelf of the "
      "libraries of aarch64-oe-linux-gcc11.2")  # fmt: skip
def libstdcpp_missing(case: Case) -> Iterator[Fault]:
    """libstdc++.so.6 is on the device where the libraries of the target need it."""
    need = "libstdc++.so.6"
    if need in case.target_facts.needs_on_device and case.facts.libstdcpp is False:
        yield Fault(
            f"the libraries of {case.target} need {need}, but the device does not have it: no "
            "NPU session would open",
            f"no {need}",
            need,
            install(case.facts, "libstdc++6", need),
        )


@rule("python3-missing", REFUSE, "docs/sources/qairt.md 7: libGenie is driven by python3 with "
      "ctypes")  # fmt: skip
def python3_missing(case: Case) -> Iterator[Fault]:
    """The device has python3 where the runtime brings no genie-t2t-run."""
    tools = case.facts.tools
    if case.selection.runner == "runtime" and (tools.python3 is None or not tools.python3_ctypes):
        yield Fault(
            "fleet opens an NPU session with python3 and ctypes before it switches to a runtime "
            "without a bundle, but the device has no such python3",
            tools.python3 or "no python3",
            "python3 with ctypes",
            "write `bundle:` in the playbook, whose runner has a test of its own"
            if case.facts.android is not None
            else install(case.facts, "python3"),
        )
    if case.selection.runner != "genie" or case.selection.has_tool:
        return
    if case.target_facts.os == "windows":
        return  # windows-python and runtime-incomplete report it
    if tools.python3 is None or tools.python3_ctypes is False:
        what = "has no python3" if tools.python3 is None else "has a python3 without ctypes"
        sdk = sdk_command(case.runtime.build_id, case.target)
        phone = case.facts.android is not None
        yield Fault(
            "fleet needs genie-t2t-run or python3 with ctypes to run Genie, but the runtime "
            f"has no genie-t2t-run for {case.target}, and the device {what}",
            tools.python3 or "no python3",
            "genie-t2t-run" if phone else "python3 with ctypes, or genie-t2t-run",
            f"add a QAIRT SDK, which has genie-t2t-run: {sdk}"
            if phone
            else f"{install(case.facts, 'python3')}, or add a QAIRT SDK: {sdk}",
        )


@rule("disk-full", REFUSE, "docs/sources/deployment.md 9: free disk for bundle and runtime")
def disk_full(case: Case) -> Iterator[Fault]:
    """There is room for what is sent: blocks and inodes of the deploy user, with a margin."""
    disk = case.facts.disk
    cure = (
        f"free space on {disk.mount or disk.path}, lower `keep` in the playbook, or set "
        "`base_dir` in the inventory to another disk"
    )
    known = case.bytes_to_send is not None
    size = case.bytes_to_send if known else case.bundle.size + case.selection.size
    need = (size or 0) + _MARGIN_BYTES
    if disk.room_bytes is None:
        yield unknown(
            "the free space on the device", _mb(need), "fleet facts (reads the device again)"
        )
    elif size and disk.room_bytes < need:
        yield Fault(
            f"not enough disk space in {disk.path} on the device for {_mb(size)}",
            f"{_mb(disk.room_bytes)} available",
            f"{_mb(need)} including a reserve",
            cure,
            REFUSE if known else WARN,
        )
    # btrfs reports 0 inodes for "no limit". A folder in which a file can be written has inodes.
    inodes = None if disk.inodes == 0 and disk.writable else disk.inodes
    if case.files_to_send and inodes is not None:
        wanted = case.files_to_send + len(case.bundle.files) + _MARGIN_FILES
        if inodes < wanted:
            yield Fault(
                f"not enough free inodes in {disk.path} for {case.files_to_send} files",
                f"{inodes} inodes",
                f"{wanted} inodes",
                cure,
            )


def _mb(count: int) -> str:
    return f"{count / _MEBI:.0f} MiB"


@rule("base-not-writable", REFUSE, "probe.sh writes a file there: -w is true for root on ro mounts")
def base_not_writable(case: Case) -> Iterator[Fault]:
    """The deploy user can write where releases go."""
    disk, user = case.facts.disk, case.facts.user.name or "$USER"
    if disk.writable is False:
        yield Fault(
            f"{case.facts.user.name or 'the user'} cannot write to {disk.path} on the device",
            "not writable",
            "writable",
            f"sudo install -d -o {user} '{disk.path}' {place_of(case.facts)}, or set "
            "`base_dir:` in the inventory to a folder that the user can write to",
        )


@rule("memory-low", WARN, "docs/sources/deployment.md 8, 9: 16 GB for 7B+, 12 GB for "
      "3B+")  # fmt: skip
def memory_low(case: Case) -> Iterator[Fault]:
    """The context binaries fit into the memory that is available."""
    have = case.facts.memory_available_bytes
    need = sum(item.size for item in case.bundle.contexts)
    if have is not None and need > have:
        yield Fault(
            "the context binaries do not fit into the free memory of the device",
            _mb(have),
            _mb(need),
            "stop other programs on the device, or deploy a smaller model",
        )


@rule("fastrpc-node", REFUSE, "docs/sources/qairt.md 6, 8: no node and no permission end "
      "alike, 14001; only an open() tells")  # fmt: skip
def fastrpc_node(case: Case) -> Iterator[Fault]:
    """The deploy user can open a FastRPC node of the compute DSP."""
    if not case.has_dsp:
        yield from _node_beside_emulator(case) if case.selection.npu else ()
        return
    nodes = [node for node in case.facts.nodes if node.path.startswith((_CDSP, _OLD_NODE))]
    need = f"{_CDSP} that {case.facts.user.name or 'the user'} can open"
    present = [node for node in nodes if node.exists]
    phone = case.facts.android is not None
    severity = WARN if phone else REFUSE
    hidden = ("; SELinux may hide the node, so only a real NPU session can tell") * phone
    if not nodes:
        yield unknown(_CDSP, need, f"ssh <device> ls -l {_CDSP}")
    elif not present:
        yield Fault(
            f"the device has no {_CDSP}: its kernel has no FastRPC driver for the "
            f"compute DSP, or the DSP is not running; QNN would fail with error 14001{hidden}",
            "ENOENT",
            need,
            "cat /sys/class/remoteproc/*/{name,state} on the device: if cdsp is not `running`, "
            "install the board's kernel and firmware; if it is, load the kernel module fastrpc",
            severity,
        )
    elif any(node.open_error == "" for node in present):
        return
    elif all(node.open_error is None for node in present):
        yield unknown(
            f"whether {present[0].path} can be opened", need, "fleet facts (reads the device again)"
        )
    else:
        node = next(refused for refused in present if refused.open_error)
        yield Fault(
            f"{node.path} cannot be opened: {node.open_error} (mode {node.mode or '?'}, "
            f"{node.owner or '?'}:{node.group or '?'}); QNN would fail with error 14001{hidden}",
            str(node.open_error),
            need,
            _node_cure(case, node),
            severity,
        )


def _node_beside_emulator(case: Case) -> Iterator[Fault]:
    """Yield a warning for a lab board whose FastRPC node cannot be opened.

    The emulator does not need the node, but a real board would.
    """
    nodes = [node for node in case.facts.nodes if node.path.startswith(_CDSP) and node.exists]
    if nodes and all(node.open_error for node in nodes):
        node = nodes[0]
        yield Fault(
            f"{node.path} cannot be opened: {node.open_error} (mode {node.mode or '?'}, "
            f"{node.owner or '?'}:{node.group or '?'}); the emulator does not use it, but on a "
            "real board QNN would fail with error 14001",
            str(node.open_error),
            f"{_CDSP} that {case.facts.user.name or 'the user'} can open",
            "fleet doctor",
            WARN,
        )


def _node_cure(case: Case, node: DeviceNode) -> str:
    user, group = case.facts.user, node.group or "fastrpc"
    if node.open_error not in {"EACCES", "EPERM"}:
        return "run `journalctl -k | grep -i cdsp` on the device and check whether the DSP started"
    if group in user.groups_db and group not in user.groups_live:
        return f"log in again or reboot the device: group {group} was added after this login"
    if group == "root" or group in user.groups_live:
        return (
            "add a udev rule that gives the node a group ( KERNEL=='fastrpc-cdsp', "
            f"GROUP='fastrpc', MODE='0640'), then sudo usermod -aG fastrpc {user.name or '$USER'}"
        )
    return (
        f"sudo usermod -aG {group} {user.name or '$USER'} {place_of(case.facts)}, then log in again"
    )


@rule("libcdsprpc-missing", REFUSE, "docs/sources/qairt.md 1, 6: the stub NEEDs the unversioned "
      "name")  # fmt: skip
def libcdsprpc_missing(case: Case) -> Iterator[Fault]:
    """libcdsprpc.so, under this very name, is on the device."""
    if not case.has_dsp:
        return
    need = "libcdsprpc.so"
    if case.facts.libcdsprpc_unversioned is None:
        yield unknown("libcdsprpc", need, "ssh <device> ldconfig -p | grep cdsprpc")
    elif not case.facts.libcdsprpc_unversioned:
        names = case.facts.libcdsprpc
        if case.facts.android is not None:
            cure = "flash the stock firmware of the phone, which brings libcdsprpc.so"
        elif names:
            cure = f"sudo ln -s '{names[0]}' '{names[0].split('.so')[0]}.so' on the device"
        else:
            cure = "set `fastrpc: auto` in the playbook, then: fleet plan (shows what it installs)"
        yield Fault(
            f"the stub library loads {need}, but the device has "
            f"{', '.join(names) or 'no libcdsprpc'}: QNN would fail with error 14001",
            ", ".join(names) or "no libcdsprpc",
            need,
            cure,
        )


@rule("dsp-shell-missing", WARN, "qualcomm/fastrpc src/fastrpc_apps_user.c open_shell; seen with "
      "Debian's 1.0.8-1")  # fmt: skip
def dsp_shell_missing(case: Case) -> Iterator[Fault]:
    """A shell for the compute DSP lies where libcdsprpc looks: no session opens without it."""
    if case.has_dsp and case.target_facts.os == "linux" and case.facts.dsp_shells == ():
        yield Fault(
            "no DSP shell file (fastrpc_shell_3, fastrpc_shell_unsigned_3) in "
            f"{', '.join(SHELL_FOLDERS)}: QNN would fail with error 14001",
            "no shell",
            "fastrpc_shell_unsigned_3",
            "sudo apt install hexagon-dsp-binaries on the device (Debian: non-free-firmware), or "
            "the firmware package of the board's vendor",
        )


@rule("dsp-library-path", WARN, "docs/sources/deployment.md 1: DSP_LIBRARY_PATH wins over "
      "ADSP_LIBRARY_PATH")  # fmt: skip
def dsp_library_path(case: Case) -> Iterator[Fault]:
    """DSP_LIBRARY_PATH is not set for the deploy user."""
    value = case.facts.dsp_library_path
    if case.has_dsp and value:
        yield Fault(
            "DSP_LIBRARY_PATH is set on the device, so programs load the skel library from "
            "this path instead of the release; fleet unsets the variable for its own runs",
            value,
            "not set",
            "run `grep -rs DSP_LIBRARY_PATH /etc ~/.*rc` on the device, and remove the line "
            "that sets the variable",
        )
