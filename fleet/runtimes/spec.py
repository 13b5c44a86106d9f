"""The runtime that the user requests: a wheel by name and version, or a QAIRT version."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fleet.model.errors import InputError
from fleet.runtimes.releases import package, qairt_of_wheel, wheel_for

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
