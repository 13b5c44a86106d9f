"""Large files that may be sent before their hash is known."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from fleet.device.shell import framed, odd_answer

_OLD = re.compile(r"old (\S+) ([0-9a-f]{64}) ([0-9]{1,18})")
_RECYCLABLE = re.compile(r"spare ([0-9a-f]{64})")


@dataclass(frozen=True)
class SpeculativeAnswer:
    """What may go now. `free` maps the name of a state → bytes that are there already. `olds`: of
    a file that may go as what differs, the sha256 of what the live release has, and those bytes.
    `recyclable`: sha256 of files that no release needs. Other files may be there under their hash.
    """

    free: dict[str, int] = field(default_factory=dict)
    olds: dict[str, tuple[str, int]] = field(default_factory=dict)
    recyclable: tuple[str, ...] = ()


def parse_speculative(text: str, host: str) -> SpeculativeAnswer:
    """The answer of ahead.sh. Raises DeviceError."""
    free, olds, recyclable = {}, {}, []
    for words in framed(text, "fleet-ahead 1", host):
        if match := _OLD.fullmatch(" ".join(words)):
            olds[match[1]] = (match[2], int(match[3]))
        elif match := _RECYCLABLE.fullmatch(" ".join(words)):
            recyclable.append(match[1])
        elif len(words) == 2 and words[1].isdigit():
            free[words[0]] = int(words[1])
        else:
            raise odd_answer(" ".join(words), host)
    return SpeculativeAnswer(free, olds, tuple(recyclable))
