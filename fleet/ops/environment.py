"""The environment of a runtime on a device."""

from __future__ import annotations

from fleet.model.manifest import BASE

DSP_SEPARATOR = ";"  # on every platform; with ':' the whole string is one folder name
# (docs/sources/deployment.md 1: qualcomm/fastrpc src/apps_std_imp.c)


OWN_PATH = "FLEET_PATH"  # on Windows: the device prepends it to PATH, which only it knows


def windows_environment(release: str, lib: str, dsp: str) -> dict[str, str]:
    """Return the environment for Windows, which finds DLLs by PATH and next to their users."""
    return {
        OWN_PATH: f"{release}/{lib}".rstrip("/"),
        "ADSP_LIBRARY_PATH": f"{release}/{dsp}".rstrip("/"),
    }


def environment(release: str, lib: str = "lib", dsp: str = "dsp") -> dict[str, str]:
    """Return LD_LIBRARY_PATH and ADSP_LIBRARY_PATH for a release folder and its library folders.

    "" is the release folder itself. Only fleet's own folders are included, so that a QNN of the
    distribution is never loaded or mixed in. `shim` has system libraries under the unversioned name
    that a stub needs (device/sh/system/shim.sh); it does not exist if the system has them.
    """
    return {
        "LD_LIBRARY_PATH": f"{release}/{lib}".rstrip("/") + f":{BASE}/shim",
        "ADSP_LIBRARY_PATH": DSP_SEPARATOR.join([f"{release}/{dsp}".rstrip("/")]),
    }
