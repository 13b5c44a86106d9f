"""Parser: output of probe.sh or probe.ps1 -> Facts."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from fleet.facts import values as read
from fleet.facts.soc import identify
from fleet.facts.values import Values, android, service_zones
from fleet.model.errors import DeviceError
from fleet.model.facts import Facts, User, Windows
from fleet.model.inventory import Host

# The output of probe.ps1 about Windows alone.

_INF = re.compile(r"qc[a-z]+(\d{4})\.inf", re.IGNORECASE)
_USER_DRIVER = "htpusrdrv.dll"  # its file version is that of the QNN in the driver (HNRD)


def windows(values: Values) -> Windows | None:
    """Return the Windows facts, None if the answer is not from Windows."""
    if read.value_of(values, "os_id") != "windows":
        return None
    services = tuple(read.pair(service) for service in values.get("npu_service", ()))
    files = tuple(read.pair(file) for file in values.get("npu_file", ()))
    codes = [match[1] for _, image in services if (match := _INF.search(image))]
    platform = (read.value_of(values, "python3_platform") or "").removeprefix("win-")
    return Windows(
        processor=read.value_of(values, "processor"),
        services=services,
        driver_folder=read.value_of(values, "npu_folder"),
        driver_files=files,
        inf_code=codes[0] if len(set(codes)) == 1 else None,
        driver_qnn=next(
            (version for name, version in files if name.lower() == _USER_DRIVER and version), None
        ),
        python_machine=platform or None,
        process_machine=read.value_of(values, "process_machine"),
        filesystem=read.value_of(values, "filesystem"),
        powershell=read.value_of(values, "powershell"),
        language_mode=read.value_of(values, "language_mode"),
        execution_policy=read.value_of(values, "execution_policy"),
        default_shell=read.value_of(values, "default_shell") or "",
    )


HEAD, TAIL = "fleet-facts 1", "end"
_SHOWN_CHARACTERS = 200
_TEXTS = (
    *("hostname", "os_id", "os_version", "os_name", "kernel", "machine", "boot_id", "machine_id"),
    *("serial_number", "dsp_library_path"),
)


def parse(text: str, host: Host | None = None, *, complaint: str = "") -> Facts:
    """Parse the output of the probe. `host` has the chip that the inventory names.

    Noise before the first line and unknown keys are ignored; an invalid value is unknown.
    `complaint` is the device's standard error. Raises DeviceError if the output is not that of the
    probe or is truncated, InputError for a chip that the table does not contain.
    """
    values = framed_values(text, host.name if host else "", complaint)
    phone, pc = android(values), windows(values)
    libc, _, version = (read.value_of(values, "libc") or "").partition(" ")
    libraries = tuple(dict.fromkeys(values.get("libcdsprpc", ())))
    texts: dict[str, Any] = {name: read.value_of(values, name) for name in _TEXTS}
    return Facts(
        **texts,
        libc=libc or None,
        libc_version=version or None,
        uptime_s=read.seconds(values, "uptime"),
        memory_bytes=read.kilobytes(values, "mem_total_kb"),
        memory_available_bytes=read.kilobytes(values, "mem_available_kb"),
        soc=identify(
            read.soc(values),
            host.soc if host else None,
            android=phone.soc_model if phone else None,
            platform=phone.platform if phone else None,
            windows=pc,
        ),
        # groups and numeric user ids do not apply to a Windows login
        user=User(read.value_of(values, "win_user"), home=read.value_of(values, "home"))
        if pc
        else read.user(values),
        nodes=read.nodes(values),
        libcdsprpc=libraries,
        libcdsprpc_unversioned=any(path.endswith("/libcdsprpc.so") for path in libraries),
        libatomic="libatomic" in values,
        libstdcpp="libstdcpp" in values,
        qnn_libraries=tuple(dict.fromkeys(values.get("qnn_library", ()))),
        dsp_shells=_shells(values),
        base_dir=read.value_of(values, "base_dir") or "",
        store={"yes": True, "no": False}.get(read.value_of(values, "store") or ""),
        disk=read.disk(values),
        thermal=read.thermal(values) or service_zones(values),
        remoteproc=tuple(read.pair(value) for value in values.get("remoteproc", ())),
        tools=read.tools(values),
        lab="lab" in values,
        local=(host is not None and host.transport == "local") or _is_here(values),
        android=phone,
        windows=pc,
    )


def _is_here(values: Values) -> bool:
    """Return True for a lab board that shares the programs of this computer.

    Such a board reports which folder of this computer contains its /sys and /etc.
    """
    root = PurePosixPath(read.value_of(values, "lab") or "")
    return root.is_absolute() and Path(root, "etc/fleet-lab-board").is_file()


def _shells(values: Values) -> tuple[str, ...] | None:
    asked = values.get("dsp_shell")
    return None if asked is None else tuple(path for path in dict.fromkeys(asked) if path != "none")


def framed_values(text: str, host: str, complaint: str) -> Values:
    """Return the probe's lines as key → values. Raises DeviceError for a truncated answer."""
    lines = text.split("\n")
    if HEAD not in lines or TAIL not in lines[lines.index(HEAD) :]:
        output = " ".join((complaint or text).split())[-_SHOWN_CHARACTERS:]
        raise DeviceError(
            "the device returned only a part of the output of fleet's probe script"
            + (f"; the device said: {output}" * bool(output)),
            device=host,
            step="facts",
            hint="log in to the device and run `true`; if this command prints text, correct the "
            "start files of the shell, such as ~/.bashrc",
        )
    values: Values = {}
    first = lines.index(HEAD) + 1
    for line in lines[first : lines.index(TAIL, first)]:
        key, tab, value = line.partition("\t")
        if tab:
            values.setdefault(key, []).append(value.replace("\x1f", "\n"))
    return values
