"""Large files that may be sent before their hash is known."""

from __future__ import annotations

from collections.abc import Iterable

from fleet.model.command import Command
from fleet.model.facts import Facts
from fleet.model.files import FileRef
from fleet.ops.hand import hand_command, hand_for, has_hand
from fleet.ops.shell import device_script, framed, odd_answer


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


def parse_ahead(text: str, host: str) -> dict[str, int]:
    """Name of the state → bytes that are there already, of files that may be sent now.

    The others may be there under their hash, or go as what differs. Raises DeviceError.
    """
    found = {}
    for words in framed(text, "fleet-ahead 1", host):
        if len(words) != 2 or not words[1].isdigit():
            raise odd_answer(" ".join(words), host)
        found[words[0]] = int(words[1])
    return found
