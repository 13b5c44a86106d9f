"""Types of single values of files that people write, for the Structs that `shape` reads."""

from __future__ import annotations

from typing import Annotated

from fleet.config.shape import Before, Schema
from fleet.config.values import DURATION_SCHEMA, FILE_PATH, Pattern, seconds_of

Duration = Annotated[float, Before(seconds_of), Schema(DURATION_SCHEMA)]
FilePath = Annotated[str, FILE_PATH]
Source = Annotated[
    str,
    Pattern(
        r"https://\S+|docs/sources/\S+ \d+",
        "source",
        "write only an https:// address, or a note like `lab: ...`",
    ),
]
