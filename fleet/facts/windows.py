"""What probe.ps1 says of Windows alone."""

from __future__ import annotations

import re

from fleet.facts import values as read
from fleet.facts.values import Values
from fleet.model.facts import User, Windows

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
