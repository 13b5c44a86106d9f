"""Large files that may be sent before their hash is known."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from fleet.device.hand import hand_command, hand_for, has_hand
from fleet.device.shell import device_script, framed, odd_answer
from fleet.model.command import Command
from fleet.model.facts import Facts
from fleet.model.files import FileRef

_OLD = re.compile(r"old (\S+) ([0-9a-f]{64}) ([0-9]{1,18})")
_SPARE = re.compile(r"spare ([0-9a-f]{64})")


def takes_late(facts: Facts) -> bool:
    """Whether the device takes a blob whose hash follows it: it hashes by itself."""
    tools = facts.tools
    return has_hand(facts) or bool(tools.sha256 and tools.dd_fullblock and facts.windows is None)


def ahead_command(facts: Facts, name: str) -> Command:
    """Asks which of some files nothing on the device can be."""
    if has_hand(facts):
        return hand_command(facts, "ahead", facts.base_dir, name)
    return device_script("ahead", facts.base_dir, name)


def ahead_input(facts: Facts, files: Iterable[FileRef]) -> bytes:
    """Its standard input. The sha256 of these files is a name for their state."""
    return hand_for(facts) + b"".join(
        f"{one.sha256}\t{one.size}\t{one.name}\n".encode() for one in files
    )


@dataclass(frozen=True)
class Answer:
    """What may go now. `free` maps the name of a state → bytes that are there already. `olds`: of
    a file that may go as what differs, the sha256 of what the live release has, and those bytes.
    `spares`: sha256 of files that no release needs. Other files may be there under their hash.
    """

    free: dict[str, int] = field(default_factory=dict)
    olds: dict[str, tuple[str, int]] = field(default_factory=dict)
    spares: tuple[str, ...] = ()


def parse_ahead(text: str, host: str) -> Answer:
    """The answer of `ahead_command`. Raises DeviceError."""
    free, olds, spares = {}, {}, []
    for words in framed(text, "fleet-ahead 1", host):
        if match := _OLD.fullmatch(" ".join(words)):
            olds[match[1]] = (match[2], int(match[3]))
        elif match := _SPARE.fullmatch(" ".join(words)):
            spares.append(match[1])
        elif len(words) == 2 and words[1].isdigit():
            free[words[0]] = int(words[1])
        else:
            raise odd_answer(" ".join(words), host)
    return Answer(free, olds, tuple(spares))
