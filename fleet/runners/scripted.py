"""What the runners share whose program is a script of ours, for the Python of the device."""

from __future__ import annotations

from fleet.runners.base import Defaults, Kit, Start
from fleet.runtimes.packages import SITE

OUTCOME = "outcome.json"


class Scripted(Defaults):
    """The script loads the model, checks or measures it, and writes OUTCOME."""

    python = True

    def health(self, kit: Kit, timeout: float) -> Start | None:
        """Load the model, run it where that is more than loading it, and end."""
        return self._start(kit, timeout, "--check")

    def start(self, kit: Kit) -> Start:
        """Warm-ups and timed runs of one loaded model."""
        return self._start(kit, kit.run.timeout)

    def _start(self, kit: Kit, timeout: float, *more: str) -> Start:
        raise NotImplementedError


def script_argv(script: str, timeout: float, *more: str) -> tuple[str, ...]:
    """The command for a script of the release; `more` are options of its own."""
    return (
        *("python3", "-I", "{release}/" + script, "--site", "{release}/" + SITE),
        *("--spec", "{work}/config.json", "--outcome", "{work}/" + OUTCOME),
        *("--timeout", f"{timeout:g}", *more),
    )
