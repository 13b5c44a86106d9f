"""Rules about Windows: Python, catalogs of skels, NPU driver, disk. Each yields its violations."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.bundles.rule import REFUSE, Case, Fault, rule, unknown
from fleet.model.facts import Windows
from fleet.model.runtime import version_key

_FIRST_SIGNED = 0x73  # Windows checks skels from Snapdragon X on; SDK 2.25 has no catalog for v68
_LEAST_DRIVER = "2.22.2"
_LINKS = {"NTFS", "REFS"}
_OLDEST_PYTHON = (3, 8)
_INSTALL = "winget install Python.Python.3.12 --architecture arm64 --scope machine on the device"


def _pc(case: Case) -> Windows | None:
    return case.facts.windows if case.target_facts.os == "windows" else None


@rule("windows-python", REFUSE, "docs/windows.md: Python does the work of fleet's scripts there; "
      "wheels of onnxruntime-qnn 2.7.0: win_arm64 holds pure ARM64 DLLs, read; its release notes: "
      "Windows x64 is for AOT compilation")  # fmt: skip
def windows_python(case: Case) -> Iterator[Fault]:
    """The device has a Python, and for runner ort one of the architecture of the packages."""
    pc, tools = _pc(case), case.facts.tools
    if pc is None:
        return
    if tools.python3 is None or tools.python3_version is None:
        yield Fault("fleet needs Python on Windows, but the device has no Python",
                    "no Python", "Python 3.8 or newer, for ARM64 with runner ort",
                    f"{_INSTALL} (ssh cannot start a Python from the Microsoft Store)")  # fmt: skip
        return
    if version_key(tools.python3_version)[:2] < _OLDEST_PYTHON:
        yield Fault(f"Python {tools.python3_version} of the device is too old for fleet",
                    tools.python3_version, "3.8 or newer", _INSTALL)  # fmt: skip
    if case.selection.runner != "ort":
        return
    need = "arm64"
    if pc.python_machine is None:
        yield unknown(
            "the architecture of the device's Python", need, "fleet facts (reads the device again)"
        )
    elif pc.python_machine != need:
        yield Fault(
            f"the Python of the device is an emulated {pc.python_machine} Python, but the "
            f"packages are for {' and '.join(case.target_facts.wheel_platforms)}: they would "
            "fail with `DLL load failed`",
            f"{pc.python_machine} ({tools.python3})",
            need,
            f"{_INSTALL}, and put it before the other Python in PATH (guides that name AMD64 mean "
            "tools that compile models: the win_amd64 wheel of onnxruntime-qnn runs none)",
        )


@rule("windows-arm64x", REFUSE, "docs/sources/deployment.md 7: pure ARM64 tools cannot load arm64x "
      "DLLs")  # fmt: skip
def windows_arm64x(case: Case) -> Iterator[Fault]:
    """The files are those for native ARM64 programs, and all of one kind."""
    if _pc(case) is None:
        return
    cure = "remove `target:` of this device in the inventory, or set `target: aarch64-windows-msvc`"
    if case.target.startswith("arm64x"):
        yield Fault(
            "files of arm64x targets are for emulated x64 programs, but fleet starts ARM64 "
            "programs",
            case.target,
            "aarch64-windows-msvc",
            cure,
        )
    wrong = [library for library in case.libraries if library.machine == "win-x86_64"]
    if wrong:
        yield Fault(f"{wrong[0].name} is an x64 library, and ARM64 programs cannot load it",
                    "win-x86_64", "win-arm64",
                    "add the runtime again, from an SDK or wheel of one target")  # fmt: skip


@rule("skel-catalog", REFUSE, "docs.qualcomm.com 80-63442-10 htp_lib_loading: transportStatus 9")
def skel_catalog(case: Case) -> Iterator[Fault]:
    """Each skel of v73 and later goes with its signed catalog, into one folder."""
    arch = case.facts.soc.hexagon_arch
    if _pc(case) is None or arch is None or int(arch.lstrip("v"), 16) < _FIRST_SIGNED:
        return
    names = {item.name.rsplit("/", 1)[-1] for item in case.selection.files}
    skel, catalog = f"libQnnHtp{arch.upper()}Skel.so", f"libqnnhtp{arch}.cat"
    if skel in names and catalog not in names:
        yield Fault(
            f"the runtime has {skel} but not its signed catalog {catalog}: Windows would not "
            "let the DSP load the file (transportStatus 9, 0x80000406)",
            f"no {catalog}",
            f"lib/hexagon-{arch}/unsigned/{catalog}",
            f"fleet runtime fetch <version with the catalog> --target {case.target}",
        )


@rule("windows-npu-driver", REFUSE, "onnxruntime-qnn htp_usr_drv_utils.cc; "
      "docs/sources/deployment.md 7: HNRD from QNN 2.22.2")  # fmt: skip
def windows_npu_driver(case: Case) -> Iterator[Fault]:
    """The NPU driver is there, and its own QNN is 2.22.2 or newer."""
    pc = _pc(case)
    if pc is None or not case.selection.npu:
        return
    cure = "install the NPU driver (Windows Update, optional updates), then restart the PC"
    if not pc.services:
        yield Fault("the NPU driver is not installed (no service qcnspmcdm or qcadsprpc)",
                    "no service", "the Qualcomm NPU driver", cure)  # fmt: skip
    elif pc.driver_qnn is not None:
        try:
            old = version_key(pc.driver_qnn)[:3] < version_key(_LEAST_DRIVER)
        except ValueError:
            yield unknown(
                "the QNN of the NPU driver", _LEAST_DRIVER, "fleet facts (reads the device again)"
            )
            return
        if old:
            yield Fault(f"the NPU driver is too old: it contains QNN {pc.driver_qnn}",
                        pc.driver_qnn, f"{_LEAST_DRIVER} or newer", cure)  # fmt: skip


@rule("windows-filesystem", REFUSE, "Microsoft, Hard links and junctions: NTFS; releases are links")
def windows_filesystem(case: Case) -> Iterator[Fault]:
    """The base folder is on a file system with hard links."""
    pc = _pc(case)
    if pc is not None and pc.filesystem and pc.filesystem.upper() not in _LINKS:
        yield Fault(
            f"{case.facts.disk.path} is on the file system {pc.filesystem}, but fleet needs hard "
            "links, which it does not have",
            pc.filesystem,
            "NTFS or ReFS",
            "set `base_dir:` of this device in the inventory to a folder on NTFS, like C:/fleet",
        )
