"""Runners: what to start on a device, what to collect, how to read it."""

from __future__ import annotations

from fleet.model.errors import InputError
from fleet.runners.base import Ended, Outcome, Runner, Start
from fleet.runners.genie import GenieRunner

__all__ = ["RUNNERS", "Ended", "Outcome", "Runner", "Start", "runner"]

RUNNERS: dict[str, Runner] = {"genie": GenieRunner()}


def runner(name: str) -> Runner:
    """The runner of that name; InputError with the known names otherwise."""
    if name not in RUNNERS:
        raise InputError(
            f"there is no runner '{name}'", hint=f"known runners: {', '.join(sorted(RUNNERS))}"
        )
    return RUNNERS[name]
