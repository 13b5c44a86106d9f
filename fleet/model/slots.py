"""Slots of log lines (library, symbol, path ...), and texts that are filled with their values.

`{library}` in a title or a command becomes the library of the log. `{library:a library}` has a
default for a log that names none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# The RE2 pattern of each slot in a line. A pattern uses each slot once. No slot can contain shell
# syntax, because its text goes into commands that people paste.
SLOTS = {
    "library": r"\w[\w.+-]*\.(?:so(?:\.\d+)*|dll|dylib)\b",
    "symbol": r"[A-Za-z_]\w{2,}(?:@+[\w.]+)?",
    "path": r"(?:/|[A-Z]:\\)[\w./\\+@%=~-]{2,200}",
    "setting": r"/[\w./+@%=~-]{2,200}",
    "processor": r"(?:gpdsp\d?|[acs]dsp\d?|turing)",
    "version": r"v?\d+(?:\.\d+){1,4}",
    "package": r"[A-Za-z0-9][\w.+-]{1,60}",
    "module": r"[A-Za-z_][\w.]{1,60}",
    "errno": r"E[A-Z0-9]{2,14}",
    "arch": r"v(?:6[0-9]|7[0-9]|8[0-9])",
    "address": r"\w[\w.-]*(?::\d+)?",
    "subject": r"[\w/.~][\w./\\+@%~:=-]{1,160}",
    "count": r"\d{1,9}",
    "total": r"\d{1,9}",
    "length": r"\d{1,12}",
}
# A sentence of a log may be in a title. It can contain anything, so it is never in a command.
QUOTED = ("statement",)
_IN_TEXT = re.compile(r"\{(" + "|".join((*SLOTS, *QUOTED)) + r")(?::([^{}]*))?\}")

# Folders that commands name as shell variables, and the message of a shell where they are not set.
FOLDERS = {
    "RELEASE": "set RELEASE to the folder that holds lib and dsp",
    "BUNDLE": "set BUNDLE to the folder of the model",
    "QAIRT": "set QAIRT to the folder of the SDK",
}
# Placeholders for the release and the device in commands, and their keys in `slots`.
PLACEHOLDERS = {
    "fleet rollback NAME": "NAME",
    "--limit DEVICE": "HOST",
    "ssh-keygen -R DEVICE": "KEY_NAME",
    "ssh-keygen -F DEVICE": "KEY_NAME",
    "ssh-copy-id USER@DEVICE": "SSH",
    "ssh -o BatchMode=yes DEVICE": "SSH",
    "ssh -O exit DEVICE": "SSH",
    "ssh -t DEVICE": "SSH",
}
_FOLDER = re.compile(r"(\"?)\$(" + "|".join(FOLDERS) + r")\b(\"?)")


def filled(text: str, slots: Mapping[str, str]) -> str:
    """Return the text with known slots filled, others with their default, or with the slot's name.

    Placeholders of commands become the values of `slots` for this device. A folder (`$RELEASE`)
    becomes its path if `slots` has it under `RELEASE`. Otherwise the command fails with a message
    in a shell without this variable, so that it never reads `/lib`.
    """
    for placeholder, name in PLACEHOLDERS.items():
        if word := slots.get(name):
            text = text.replace(placeholder, placeholder.rpartition(" ")[0] + f" {word}")
    text = _FOLDER.sub(lambda folder: _folder(folder, slots), text)
    return _IN_TEXT.sub(lambda slot: slots.get(slot[1]) or slot[2] or f"<{slot[1]}>", text)


def _folder(match: re.Match[str], slots: Mapping[str, str]) -> str:
    before, name, after = match.groups()
    if path := slots.get(name):
        return before + path + after
    return f"{before}${{{name}:?{FOLDERS[name]}}}{after}"
