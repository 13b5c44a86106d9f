"""Output of probe.sh or probe.ps1 -> Facts."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from fleet.facts import values as read
from fleet.facts.android import android, service_zones
from fleet.facts.soc import identify
from fleet.facts.values import Values
from fleet.model.errors import DeviceError
from fleet.model.facts import Facts, User, Windows
from fleet.model.inventory import Host

# What probe.ps1 says of Windows alone.

_INF = re.compile(r"qc[a-z]+(\d{4})\.inf", re.IGNORECASE)
_USER_DRIVER = "htpusrdrv.dll"  # its file version is that of the QNN in the driver (HNRD)


def windows(found: Values) -> Windows | None:
    """None where the answer is not from Windows."""
    if read.value_of(found, "os_id") != "windows":
        return None
    services = tuple(read.pair(service) for service in found.get("npu_service", ()))
    files = tuple(read.pair(file) for file in found.get("npu_file", ()))
    codes = [match[1] for _, image in services if (match := _INF.search(image))]
    platform = (read.value_of(found, "python3_platform") or "").removeprefix("win-")
    return Windows(
        processor=read.value_of(found, "processor"),
        services=services,
        driver_folder=read.value_of(found, "npu_folder"),
        driver_files=files,
        inf_code=codes[0] if len(set(codes)) == 1 else None,
        driver_qnn=next(
            (version for name, version in files if name.lower() == _USER_DRIVER and version), None
        ),
        python_machine=platform or None,
        process_machine=read.value_of(found, "process_machine"),
        filesystem=read.value_of(found, "filesystem"),
        powershell=read.value_of(found, "powershell"),
        language_mode=read.value_of(found, "language_mode"),
        execution_policy=read.value_of(found, "execution_policy"),
        default_shell=read.value_of(found, "default_shell") or "",
    )


def user_of(found: Values) -> User:
    """The login; groups and numbers of users mean nothing there."""
    return User(name=read.value_of(found, "win_user"), home=read.value_of(found, "home"))


HEAD, TAIL = "fleet-facts 1", "end"
_SHOWN_CHARACTERS = 200
_TEXTS = (
    *("hostname", "os_id", "os_version", "os_name", "kernel", "machine", "boot_id", "machine_id"),
    *("serial_number", "dsp_library_path"),
)


def parse(text: str, host: Host | None = None, *, complaint: str = "") -> Facts:
    """Facts of the probe's output. `host` has the chip that the inventory names.

    Noise before the first line is dropped, unknown keys are ignored, a value that makes no
    sense is unknown. `complaint` is the device's standard error. Raises DeviceError when the
    output is not that of the probe or was cut, InputError for a chip that the table has not.
    """
    found = framed_values(text, host.name if host else "", complaint)
    phone, pc = android(found), windows(found)
    libc, _, version = (read.value_of(found, "libc") or "").partition(" ")
    libraries = tuple(dict.fromkeys(found.get("libcdsprpc", ())))
    texts: dict[str, Any] = {name: read.value_of(found, name) for name in _TEXTS}
    return Facts(
        **texts,
        libc=libc or None,
        libc_version=version or None,
        uptime_s=read.seconds(found, "uptime"),
        memory_bytes=read.kilobytes(found, "mem_total_kb"),
        memory_available_bytes=read.kilobytes(found, "mem_available_kb"),
        soc=identify(
            read.soc(found),
            host.soc if host else None,
            android=phone.soc_model if phone else None,
            platform=phone.platform if phone else None,
            windows=pc,
        ),
        user=user_of(found) if pc else read.user(found),
        nodes=read.nodes(found),
        libcdsprpc=libraries,
        libcdsprpc_unversioned=any(path.endswith("/libcdsprpc.so") for path in libraries),
        libatomic="libatomic" in found,
        libstdcpp="libstdcpp" in found,
        qnn_libraries=tuple(dict.fromkeys(found.get("qnn_library", ()))),
        dsp_shells=_shells(found),
        base_dir=read.value_of(found, "base_dir") or "",
        store={"yes": True, "no": False}.get(read.value_of(found, "store") or ""),
        disk=read.disk(found),
        thermal=read.thermal(found) or service_zones(found),
        remoteproc=tuple(read.pair(value) for value in found.get("remoteproc", ())),
        tools=read.tools(found),
        lab="lab" in found,
        local=(host is not None and host.transport == "local") or _is_here(found),
        android=phone,
        windows=pc,
    )


def _is_here(found: Values) -> bool:
    """Return whether this is a lab board that shares the programs of this computer: it says
    which folder of this computer its /sys and /etc are.
    """
    root = PurePosixPath(read.value_of(found, "lab") or "")
    return root.is_absolute() and Path(root, "etc/fleet-lab-board").is_file()


def _shells(found: Values) -> tuple[str, ...] | None:
    asked = found.get("dsp_shell")
    return None if asked is None else tuple(path for path in dict.fromkeys(asked) if path != "none")


def framed_values(text: str, host: str, complaint: str) -> Values:
    """Key → values of the probe's lines. Raises DeviceError when the answer was cut."""
    lines = text.split("\n")
    if HEAD not in lines or TAIL not in lines[lines.index(HEAD) :]:
        said = " ".join((complaint or text).split())[-_SHOWN_CHARACTERS:]
        raise DeviceError(
            "the device returned only a part of the output of fleet's probe script"
            + (f"; the device said: {said}" * bool(said)),
            device=host,
            step="facts",
            hint="log in to the device and run `true`; if this command prints text, correct the "
            "start files of the shell, such as ~/.bashrc",
        )
    found: Values = {}
    first = lines.index(HEAD) + 1
    for line in lines[first : lines.index(TAIL, first)]:
        key, tab, value = line.partition("\t")
        if tab:
            found.setdefault(key, []).append(value.replace("\x1f", "\n"))
    return found
