"""The environment of a runtime on a device, and the health probe as plain data."""

from __future__ import annotations

from typing import Any

from fleet.model.manifest import BASE

DSP_SEPARATOR = ";"  # on every platform; with ':' the whole string is one folder name
# (deployment.md section 0, fact 6: qualcomm/fastrpc src/apps_std_imp.c)


def environment(release: str) -> dict[str, str]:
    """LD_LIBRARY_PATH and ADSP_LIBRARY_PATH for a release folder.

    Only fleet's own folders: a QNN of the distribution must never win or mix in. `shim`
    holds libraries of the system under the unversioned name that a stub asks for
    (ops/scripts/shim.sh); it is absent where the system has them.
    """
    return {
        "LD_LIBRARY_PATH": f"{release}/lib:{BASE}/shim",
        "ADSP_LIBRARY_PATH": DSP_SEPARATOR.join([f"{release}/dsp"]),
    }


def health_as_dict(argv: tuple[str, ...], cwd: str, config: str, timeout: float) -> dict[str, Any]:
    """The health probe for the manifest, so that a rollback needs no bundle on the host."""
    return {"argv": list(argv), "cwd": cwd, "config": config, "timeout": timeout}
