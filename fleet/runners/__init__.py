"""Runners: what to start on a device, what to collect, how to read it.

Their interface is here; the runners themselves are in `registry`, which a push never loads.
"""

from __future__ import annotations

from fleet.runners.base import FLAT, Ended, Kit, Layout, Outcome, Runner, Start
from fleet.runners.options import Defaults

__all__ = ["FLAT", "Defaults", "Ended", "Kit", "Layout", "Outcome", "Runner", "Start"]
