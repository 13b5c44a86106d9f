"""Boards without hardware: real sshd, real userland, Qualcomm's HTP emulator."""

from __future__ import annotations

from fleet.lab.folder import Board
from fleet.lab.lab import Lab, LabPhones

__all__ = ["Board", "Lab", "LabPhones"]
