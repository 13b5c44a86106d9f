"""fleet: deploy, run, profile and diagnose models on fleets of Qualcomm NPU devices.

`__all__` lists the Python API; docs/api.md has a page of examples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleet.model.version import VERSION

if TYPE_CHECKING:
    from fleet.api import (
        DeployOptions,
        DeviceResult,
        FleetError,
        PushOptions,
        adb_device,
        compare,
        connection,
        deploy,
        diagnose,
        diagnose_log,
        exec,  # noqa: A004 - the word of the command line
        get,
        group,
        load,
        plan,
        push,
        records,
        rollback,
        run,
        status,
    )

__all__ = [
    "DeployOptions", "DeviceResult", "FleetError", "PushOptions", "__version__", "adb_device",
    "compare", "connection", "deploy", "diagnose", "diagnose_log", "exec", "get", "group", "load",
    "plan", "push", "records", "rollback", "run", "status",
]  # fmt: skip
__version__ = VERSION


def __getattr__(name: str) -> Any:  # noqa: ANN401 - the signature of PEP 562
    """Load the API on demand, so that lower packages import nothing of the engine."""
    if name in __all__:
        from fleet import api  # noqa: PLC0415

        return getattr(api, name)
    raise AttributeError(name)
