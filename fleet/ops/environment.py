"""The environment of a runtime on a device, and the health probe as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet.model.manifest import BASE

DSP_SEPARATOR = ";"  # on every platform; with ':' the whole string is one folder name
# (docs/sources/deployment.md 1: qualcomm/fastrpc src/apps_std_imp.c)


OWN_PATH = "FLEET_PATH"  # of Windows: put before PATH by the device, which alone knows it


def windows_environment(release: str, lib: str, dsp: str) -> dict[str, str]:
    """The same for Windows: DLLs are found by PATH, and beside those that load them."""
    return {
        OWN_PATH: f"{release}/{lib}".rstrip("/"),
        "ADSP_LIBRARY_PATH": f"{release}/{dsp}".rstrip("/"),
    }


def environment(release: str, lib: str = "lib", dsp: str = "dsp") -> dict[str, str]:
    """LD_LIBRARY_PATH and ADSP_LIBRARY_PATH for a release folder and its two folders of
    libraries ("" is the release folder itself).

    Only fleet's own folders: a QNN of the distribution must never win or mix in. `shim`
    holds libraries of the system under the unversioned name that a stub asks for
    (device/sh/system/shim.sh); it is absent where the system has them.
    """
    return {
        "LD_LIBRARY_PATH": f"{release}/{lib}".rstrip("/") + f":{BASE}/shim",
        "ADSP_LIBRARY_PATH": DSP_SEPARATOR.join([f"{release}/{dsp}".rstrip("/")]),
    }


def health_as_dict(
    argv: tuple[str, ...],
    cwd: str,
    *,
    config: str,
    timeout: float,
    prompt: str = "",
    feeds_prompt: bool = True,
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The health probe for the manifest, so that a rollback needs no bundle on the host.

    `prompt` is in the file prompt.txt of the work folder, and goes to standard input where
    `feeds_prompt`, as in the manifests of before, which say nothing of it.
    """
    base = {"argv": list(argv), "cwd": cwd, "config": config, "timeout": timeout}
    if prompt:
        base |= {"prompt": prompt} | ({} if feeds_prompt else {"feeds_prompt": False})
    return base | ({"env": dict(env)} if env else {})
