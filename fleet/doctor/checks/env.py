"""Checks of the search paths in the session and in the login files."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleet.doctor.checks.making import Maker
from fleet.doctor.seen import Seen
from fleet.model.diagnosis import Check

_SETTING = re.compile(r"^(?P<place>[^:]+:\d+):.*\b(?P<name>ADSP|DSP)_LIBRARY_PATH=(?P<value>.*)$")
_DRIVE = re.compile(r"^[A-Za-z]:\\")
_PATHS = Maker("paths", "runtime")
_COLON = "ADSP_LIBRARY_PATH has ':' between its folders; the DSP expects ';'"
_SET = "DSP_LIBRARY_PATH is set, so the DSP ignores ADSP_LIBRARY_PATH"


def paths(sample: Seen) -> Iterator[Check]:
    """ADSP_LIBRARY_PATH is separated by `;`, and DSP_LIBRARY_PATH does not replace it."""
    put_there = any(folder.there for folder in sample.folders) or not sample.releases
    wrong = False
    for name, command, value in _settings(sample):
        if name == "ADSP" and is_joined(value):
            text, facts = _COLON, {"env.adsp": "colon"}
        elif name == "DSP" and value:
            text, facts = _SET, {"env.dsp": "set"}
        else:
            continue
        wrong = True
        if command.startswith("sed "):
            facts["slot.setting"] = command.rpartition(" ")[2]
        if put_there:
            yield _PATHS.bad(text, facts, command, value)
        else:
            text += " (programs that fleet starts are not affected)"
            yield _PATHS.warn(text, facts, command, value)
    if not wrong:
        facts = {"env.adsp": "ok", "env.dsp": "unset"}
        text = "the library search paths of the DSP are correct"
        yield _PATHS.ok(text, facts, "env | grep DSP_LIBRARY_PATH")


def _settings(sample: Seen) -> Iterator[tuple[str, str, str]]:
    """Yield (ADSP or DSP, command that shows it, value) of the session, then of login files."""
    if value := sample.facts.dsp_library_path:
        yield "DSP", "echo $DSP_LIBRARY_PATH", value
    for row in sample.pairs("env"):
        if row[0] == "ADSP_LIBRARY_PATH" and row[-1]:
            yield "ADSP", "echo $ADSP_LIBRARY_PATH", row[-1]
    for text in sample.lines.get("setting", ()):
        if match := _SETTING.match(text):
            file, _, line = match["place"].rpartition(":")
            shown = f"sed -n {line}p {file}"
            yield match["name"], shown, match["value"].strip().strip("\"'")


def is_joined(value: str) -> bool:
    """Return True for folders that are joined by ':', which the library takes for a single name."""
    parts = [part for part in value.split(":") if part]
    return ";" not in value and len(parts) > 1 and not _DRIVE.match(value)
