"""Checks of the search paths, as the session has them and as files of the login set them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleet.doctor.seen import Seen
from fleet.model.diagnosis import BAD, OK, WARN, Check

_SETTING = re.compile(r"^(?P<place>[^:]+:\d+):.*\b(?P<name>ADSP|DSP)_LIBRARY_PATH=(?P<value>.*)$")
_DRIVE = re.compile(r"^[A-Za-z]:\\")


def paths(seen: Seen) -> Iterator[Check]:
    """ADSP_LIBRARY_PATH is separated by `;`, and DSP_LIBRARY_PATH does not replace it."""
    found = list(_settings(seen))
    colons = [one for one in found if one[0] == "ADSP" and is_joined(one[2])]
    replaced = [one for one in found if one[0] == "DSP" and one[2]]
    by_hand = any(one.there for one in seen.folders) or not seen.releases
    status = BAD if by_hand else WARN
    note = "" if by_hand else " (releases of fleet set their own)"
    for _, place, value in colons[:2]:
        yield Check(
            "paths",
            "runtime",
            status,
            f"ADSP_LIBRARY_PATH is joined by ':', so it is one folder name{note}",
            {"env.adsp": "colon"},
            place,
            value,
        )
    for _, place, value in replaced[:2]:
        yield Check(
            "paths",
            "runtime",
            status,
            f"DSP_LIBRARY_PATH is set and replaces ADSP_LIBRARY_PATH{note}",
            {"env.dsp": "set"},
            place,
            value,
        )
    if not colons and not replaced:
        yield Check(
            "paths",
            "runtime",
            OK,
            "nothing wrong with the DSP's search paths",
            {"env.adsp": "ok", "env.dsp": "unset"},
            "env | grep DSP_LIBRARY_PATH",
        )


def _settings(seen: Seen) -> Iterator[tuple[str, str, str]]:
    """(ADSP or DSP, where, value): the session's environment, then files that set it."""
    if value := seen.facts.dsp_library_path:
        yield "DSP", "echo $DSP_LIBRARY_PATH", value
    for row in seen.pairs("env"):
        if row[0] == "ADSP_LIBRARY_PATH" and row[-1]:
            yield "ADSP", "echo $ADSP_LIBRARY_PATH", row[-1]
    for text in seen.lines.get("setting", ()):
        if match := _SETTING.match(text):
            yield match["name"], f"cat {match['place']}", match["value"].strip().strip("\"'")


def is_joined(value: str) -> bool:
    """True for folders that are joined by ':', which the library takes for one name."""
    parts = [one for one in value.split(":") if one]
    return ";" not in value and len(parts) > 1 and not _DRIVE.match(value)
