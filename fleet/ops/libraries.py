"""Which libraries and programs a device has of its own."""

from __future__ import annotations

from collections.abc import Iterable

from fleet.device.shell import device_script, framed
from fleet.model.command import Command


def libraries_command(names: Iterable[str], programs: Iterable[str] = ()) -> Command:
    """Ask which of these libraries the loader of the device finds, and which of these programs
    its shell finds.
    """
    return device_script("libraries", *names, "--", *programs)


def parse_libraries(text: str, host: str) -> frozenset[str]:
    """The names that are there. Raises DeviceError for another answer."""
    return frozenset(
        words[1]
        for words in framed(text, "fleet-libraries 1", host)
        if len(words) == 2 and words[0] == "there"
    )
