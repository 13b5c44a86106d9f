"""Device scripts as commands."""

from __future__ import annotations

from collections.abc import Callable

from fleet.device.texts import shell_text
from fleet.model.command import Command, Result, script
from fleet.model.errors import DeviceError
from fleet.model.masking import masked

_REPLACING = frozenset({"lease", "shim", "switch", "tools"})
_STAGING = frozenset({"stage", "stage_tar"})


def source(name: str) -> str:
    """Return the text of a script with the functions that it uses, without comments."""
    bare = shell_text(name)
    if name in _STAGING:
        return bare + shell_text("settle")
    return shell_text("replace") + bare if name in _REPLACING else bare


def device_script(name: str, *args: str) -> Command:
    """Return the script `sh/*/<name>.sh` with its arguments as one command."""
    return script(source(name), *args, name=name)


def last_words(result: Result) -> str:
    """Return the end of a command's output, with standard error preferred."""
    return masked(result.error_text or result.text.strip() or "no message")[-400:]


def failed(result: Result, step: str, host: str) -> DeviceError:
    """Return the error of a control script that failed with a status, with its last words."""
    words = last_words(result)
    return DeviceError(
        f"{step} failed with status {result.status}: {words}", device=host, step=step
    )


MARK = b"fleet-file\n"


class AfterMark:
    """A filter that forwards only the output after the mark of show.sh and collect.sh.

    A login shell may print text before: bash reads ~/.bashrc for every ssh command.
    """

    def __init__(self, forward: Callable[[bytes], object]) -> None:
        self._forward = forward
        self._before: bytes | None = b""

    def __call__(self, chunk: bytes) -> None:
        """Forward a chunk of standard output without what precedes the mark."""
        if self._before is not None:
            whole = self._before + chunk
            noise, mark, chunk = whole.partition(MARK)
            self._before = None if mark else noise[-len(MARK) :]
        if self._before is None and chunk:
            self._forward(chunk)


def odd_answer(line: str, host: str) -> DeviceError:
    """Return the error for a line that none of fleet's scripts prints."""
    return DeviceError(
        f"fleet does not understand a line that the device returned: {masked(line)[:200]!r}",
        device=host,
        hint="fleet doctor (finds tools on the device that do not work as expected)",
    )


def framed(text: str, tag: str, host: str) -> list[list[str]]:
    """Return the lines between `tag` and `end`, split at blanks, without noise before `tag`.

    Raises DeviceError for a truncated answer.
    """
    lines = text.splitlines()
    if tag not in lines or lines[-1:] != ["end"]:
        raise DeviceError(
            "the device returned only a part of the answer; the answer ends with "
            f"{masked(text)[-200:]!r}",
            device=host,
            hint="check ~/.profile and ~/.bashrc on the device: these files must not print text "
            "or call exit",
        )
    return [line.split(" ") for line in lines[lines.index(tag) + 1 : -1]]
