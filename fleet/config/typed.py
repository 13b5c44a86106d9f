"""Types of single values of files that people write, for Structs."""

from __future__ import annotations

from typing import Annotated

from fleet.config.shape import Before, Schema
from fleet.config.values import DURATION_SCHEMA, FILE_PATH, Pattern, seconds_of

Matches = Pattern
Duration = Annotated[float, Before(seconds_of), Schema(DURATION_SCHEMA)]
FilePath = Annotated[str, FILE_PATH]
