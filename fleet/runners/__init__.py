"""Runners: what to start on a device, which files to collect, and how to read them.

The interface is in this package. The runners themselves are in `registry`, which a push never
loads.
"""

from __future__ import annotations

from fleet.runners.base import FLAT, Ended, Kit, Layout, Outcome, Runner, Start
from fleet.runners.options import Defaults

__all__ = ["FLAT", "Defaults", "Ended", "Kit", "Layout", "Outcome", "Runner", "Start"]
