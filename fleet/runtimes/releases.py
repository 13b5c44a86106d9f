"""The wheels that contain each QAIRT release, the API of each QAIRT version, and the runtime that a
user requests.

The table is `fleet/data/qairt_releases.yaml`. A version that is not in it is unknown (None).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.data import load
from fleet.model.errors import InputError, RuntimeStoreError
from fleet.model.files import sha256_file
from fleet.model.runtime import same_build, version_key


def _rows() -> list[Mapping[str, str]]:
    rows: list[Mapping[str, str]] = load("qairt_releases")["releases"]
    return rows


def package() -> str:
    """Return the name of the package whose wheels contain QAIRT."""
    return str(load("qairt_releases")["package"])


def sdk_url(version: str) -> str:
    """Return the URL of the vendor's SDK zip of a version with date (`2.45.0.260326`).

    FLEET_SDK_URL names another server with the same files: a URL that contains `{version}`. Raises
    InputError for a URL without it.
    """
    template = os.environ.get("FLEET_SDK_URL") or str(load("qairt_releases")["sdk_url"])
    if "{version}" not in template or not template.startswith(("https://", "http://")):
        raise InputError(
            f"FLEET_SDK_URL is '{template}', which is not a web address with {{version}} in it",
            hint="unset FLEET_SDK_URL, or write it like https://example.com/qairt/v{version}.zip",
        )
    return template.replace("{version}", version)


def release(version: str) -> Mapping[str, Any] | None:
    """Return the row of a QAIRT version or build id (`2.51.0`, `2.51.0.260929181845`, with v or
    _nnn).

    A build id matches only its own row: 2.51.0 of another day is another build. Returns None for a
    release that is not in the table.
    """
    return next((row for row in _rows() if same_build(row["build_id"], version)), None)


def wheel_for(version: str) -> str | None:
    """Return the onnxruntime-qnn version with this QAIRT: `2.51.0` → `2.7.0`; None if unknown."""
    row = release(version)
    return str(row["wheel"]) if row else None


def qairt_of_wheel(wheel: str) -> str | None:
    """Return the QAIRT build id inside onnxruntime-qnn of this version, None if unknown."""
    return next((row["build_id"] for row in _rows() if row["wheel"] == wheel), None)


def require_known(wheel: Path) -> None:
    """Raise RuntimeStoreError for a wheel of a listed release that is not the published file.

    The SHA-256 must be that of `fleet/data/wheel_hashes.yaml` for the file name. Wheels of other
    packages, and of releases that the table lacks, are accepted.
    """
    name, version = [*wheel.name.split("-", 2), ""][:2]
    if name != package().replace("-", "_") or qairt_of_wheel(version) is None:
        return
    published, got = load("wheel_hashes")["wheels"].get(wheel.name), sha256_file(wheel)
    if published is None:
        raise RuntimeStoreError(
            f"fleet did not add {wheel.name} (SHA-256 {got}), because it is not one of the "
            f"published wheels of {version}",
            hint="fleet runtime add FILE.whl, if you trust the source of the file",
        )
    if got != published:
        raise RuntimeStoreError(
            f"fleet did not add {wheel.name}, because its SHA-256 is {got}, but the published "
            f"SHA-256 is {published}",
            hint="check which package index pip uses: pip config list",
        )


def onnx_ir_version() -> int:
    """Return the newest model format that the onnxruntime of each release can read."""
    return int(load("qairt_releases")["onnx_ir_version"])


def litert_qairt() -> tuple[str, str]:
    """Return (the LiteRT of the runner litert, the oldest QAIRT for its dispatch library)."""
    row = load("qairt_releases")["litert"]
    return str(row["version"]), str(row["qairt"])


def backend_api(version: str) -> str | None:
    """Return the HTP backend API of a version: `2.51.0` → `5.51.0`; None for invalid text.

    It comes from the table, else from the rule that its minor is QAIRT's minor. The patch number of
    an unlisted version is unknown and returned as 0: compare major and minor only.
    """
    row = release(version)
    if row:
        return str(row["htp_backend_api"])
    try:
        key = version_key(version)
    except ValueError:
        return None
    if len(key) < 2 or key[0] != 2:
        return None
    return f"{load('qairt_releases')['htp_backend_api_major']}.{key[1]}.0"


DEFAULT_SPEC = "onnxruntime-qnn==2.7.0"  # the newest that fleet was tested with
_VERSION = re.compile(r"^v?\d+\.\d+\.\d+(\.\d{6,12}(_\w+)?)?$")
_DATED = re.compile(r"^\d+\.\d+\.\d+\.\d{6}")
_WHEEL = re.compile(r"^(?P<name>[A-Za-z0-9_.-]+?)(?:==(?P<version>[0-9][0-9A-Za-z.+!]*))?$")


@dataclass(frozen=True)
class WheelSpec:
    """A wheel to fetch. `qairt` is the build id or version in it, None if unknown.

    `requirement` is "" if no known wheel contains the requested QAIRT.
    """

    requirement: str
    qairt: str | None

    @property
    def latest(self) -> bool:
        """True if no version is named, so that only the index knows it."""
        return bool(self.requirement) and "==" not in self.requirement

    @property
    def file_prefix(self) -> str:
        """The beginning of this wheel's file name: `onnxruntime_qnn-2.7.0-`."""
        return self.requirement.replace("-", "_").replace("==", "-") + "-"

    @property
    def label(self) -> str:
        """The name for messages: `QAIRT 2.51.0` or `onnxruntime-qnn==2.8.0`."""
        return f"QAIRT {self.qairt}" if self.qairt else self.requirement


def parse_spec(spec: str) -> WheelSpec:
    """Parse `onnxruntime-qnn`, `onnxruntime-qnn==2.7.0`, or a QAIRT version or build id.

    Raises InputError for other text.
    """
    text = spec.strip()
    if _VERSION.match(text):
        wheel = wheel_for(text)
        return WheelSpec(f"{package()}=={wheel}" if wheel else "", text)
    match = _WHEEL.match(text)
    if match is None or match["name"].lower().replace("_", "-") != package():
        raise InputError(
            f"'{spec}' is neither a QAIRT version nor a version of {package()}",
            hint=f"write it like 2.51.0 or {package()}==2.7.0",
        )
    version = match["version"]
    if version is None:
        return WheelSpec(package(), None)
    return WheelSpec(f"{package()}=={version}", qairt_of_wheel(version))


def sdk_version(text: str) -> str:
    """Return a version or build id in the vendor's form for SDKs: `2.45.0.260326`.

    A build id ends with date and time of the build (2.45.0.260326154327), an SDK version with the
    date alone. Raises InputError for a version without a date, because it matches several SDKs.
    """
    core = text.strip().removeprefix("v").split("_", 1)[0]
    match = _DATED.match(core)
    if match is None:
        raise InputError(
            f"'{text}' is not the version of an SDK, because the date is missing",
            hint="write it with the date, like 2.45.0.260326; tool-versions.yaml of the bundle or "
            "the publisher's list of releases has it",
        )
    return match[0]


def sdk_command(version: str | None, target: str) -> str:
    """Return the command that gets an SDK: a download for a version with date, else an import."""
    match = _DATED.match((version or "").strip().removeprefix("v"))
    if match:
        return f"fleet runtime fetch {match[0]} --sdk --target {target}"
    return f"fleet runtime add <QAIRT SDK {version or ''}, folder or zip> --target {target}"
