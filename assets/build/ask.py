"""Ask one bundle through the real libGenie. Run by `verify.py` in a process of its own.

Usage: ask.py LIBRARY RESULT PROMPT...   (current folder: the bundle)

Each prompt gets a dialog of its own. The answers go to RESULT as JSON. The process leaves
without running C destructors, because libGenie does not survive Python's exit.
"""

import ctypes
import json
import os
import sys
import time
from pathlib import Path

_QUERY_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p)
_ALLOC_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p))


class GenieError(RuntimeError):
    """A function of libGenie gave a code other than 0."""


def _check(name: str, code: int) -> None:
    if code:
        raise GenieError(f"{name} gave {code}")


class Genie:
    """The few functions of libGenie that one question needs."""

    def __init__(self, library: str) -> None:
        self.lib = ctypes.CDLL(library)

    def make(self, name: str, *arguments: object) -> ctypes.c_void_p:
        """Call a function whose last argument takes a new handle."""
        handle = ctypes.c_void_p()
        _check(name, getattr(self.lib, name)(*arguments, ctypes.byref(handle)))
        return handle

    def call(self, name: str, *arguments: object) -> None:
        """Call a function that gives a code."""
        _check(name, getattr(self.lib, name)(*arguments))

    def profile(self, handle: ctypes.c_void_p) -> dict[str, object]:
        """Give the profile as libGenie wrote it."""
        kept: list[object] = []

        def allocate(size: int, place: "ctypes._Pointer[ctypes.c_void_p]") -> None:
            buffer = ctypes.create_string_buffer(size + 1)
            kept.append(buffer)
            place[0] = ctypes.addressof(buffer)

        callback = _ALLOC_CALLBACK(allocate)
        text = self.make("GenieProfile_getJsonData", handle, callback)
        return json.loads(ctypes.string_at(text.value or 0))

    def ask(self, config: bytes, prompt: str) -> dict[str, object]:
        """Give the answer, the query's code, the profile and the seconds it took."""
        start = time.monotonic()
        settings = self.make("GenieDialogConfig_createFromJson", config)
        profile = self.make("GenieProfile_create", None)
        self.call("GenieDialogConfig_bindProfiler", settings, profile)
        dialog = self.make("GenieDialog_create", settings)
        pieces: list[bytes] = []

        def take(text: bytes | None, _code: int, _user: int | None) -> None:
            pieces.append(text or b"")

        callback = _QUERY_CALLBACK(take)
        code = self.lib.GenieDialog_query(dialog, prompt.encode(), 0, callback, None)
        answer = {
            "prompt": prompt,
            "text": b"".join(pieces).decode(errors="replace"),
            "code": code,
            "profile": self.profile(profile),
            "seconds": time.monotonic() - start,
        }
        self.call("GenieDialog_free", dialog)
        self.call("GenieDialogConfig_free", settings)
        self.call("GenieProfile_free", profile)
        return answer


def main(library: str, result: str, prompts: list[str]) -> None:
    """Ask every prompt and write the answers."""
    genie = Genie(library)
    config = Path("genie_config.json").read_bytes()
    answers = [genie.ask(config, prompt) for prompt in prompts]
    Path(result).write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2], sys.argv[3:])
    except (GenieError, OSError) as error:
        print(f"ask: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)
