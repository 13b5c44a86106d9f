"""What the user asks for: a wheel by name and version, or a QAIRT version."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fleet.model.errors import InputError
from fleet.runtimes.releases import package, qairt_of_wheel, wheel_for

DEFAULT_SPEC = "onnxruntime-qnn==2.7.0"  # the newest that fleet was tested with
_VERSION = re.compile(r"^v?\d+\.\d+\.\d+(\.\d{6,12}(_\w+)?)?$")
_WHEEL = re.compile(r"^(?P<name>[A-Za-z0-9_.-]+?)(?:==(?P<version>[0-9][0-9A-Za-z.+!]*))?$")


@dataclass(frozen=True)
class WheelSpec:
    """A wheel to fetch. `qairt` is the build id or version in it, None when not known.

    `requirement` is "" when no known wheel holds the QAIRT that is asked for.
    """

    requirement: str
    qairt: str | None

    @property
    def latest(self) -> bool:
        """True when no version is named, so that only the index knows which one it is."""
        return bool(self.requirement) and "==" not in self.requirement

    @property
    def file_prefix(self) -> str:
        """How the file name of this wheel starts: `onnxruntime_qnn-2.7.0-`."""
        return self.requirement.replace("-", "_").replace("==", "-") + "-"

    @property
    def label(self) -> str:
        """For messages: `QAIRT 2.51.0` or `onnxruntime-qnn==2.8.0`."""
        return f"QAIRT {self.qairt}" if self.qairt else self.requirement


def parse_spec(spec: str) -> WheelSpec:
    """`onnxruntime-qnn`, `onnxruntime-qnn==2.7.0`, or a QAIRT version or build id.

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
