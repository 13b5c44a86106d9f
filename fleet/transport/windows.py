"""A command in the form for Windows behind OpenSSH: one constant line, the job on standard input.

The login shell of Windows' OpenSSH is cmd.exe, which accepts 8,191 characters and treats % ^ & | as
syntax. Therefore the line contains no values, only characters that no shell interprets, and is the
same for every command.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from fleet.device.call import on_windows
from fleet.device.texts import text_of
from fleet.model.command import Command, Result
from fleet.model.errors import DeviceError, InputError
from fleet.model.files import Chunk

BANNER = "OpenSSH_for_Windows"  # the name that Windows' own server announces
# InputFormat None: otherwise PowerShell reads standard input as text, and the bytes are lost.
# OutputFormat Text: otherwise errors arrive as CLIXML.
_START = (
    "powershell.exe -NoLogo -NoProfile -NonInteractive -InputFormat None -OutputFormat Text "
    "-EncodedCommand "
)
_LOST, _NO_PROGRAM = 97, 127
_PLAIN = re.compile(r"[^\s\"]+", re.ASCII)
_LONGEST = 32_000  # CreateProcess accepts 32,767 characters, including the path of the program
# cmd.exe would run these files and parse their arguments by its own rules for %, ^ and &.
_BATCH = (".bat", ".cmd")


@cache
def line() -> str:
    """Return the command line, which is the same for all commands."""
    text = text_of("bootstrap.ps1")
    code = "\n".join(row for row in text.splitlines() if not row.lstrip().startswith("#"))
    return _START + base64.b64encode(code.encode("utf-16-le")).decode("ascii")


def spoken(command: Command, stdin: Iterable[Chunk]) -> Iterator[Chunk]:
    """Return the standard input that makes the device run `command` with `stdin`.

    Raises InputError.
    """
    first = _job(command)

    def chunks() -> Iterator[Chunk]:
        yield first
        yield from stdin

    return chunks()


def explain(result: Result, host: str) -> None:
    """Raise DeviceError if the login shell or a missing Python caused the failure."""
    output = result.error_text
    if result.status == _LOST and "fleet-stdin-lost" in output:
        shell = output.partition("fleet-stdin-lost")[2].split("\n")[0].strip()
        raise DeviceError(
            "the login shell of sshd on the PC does not pass on standard input (DefaultShell "
            f"is {shell or 'unknown'})",
            device=host,
            hint="remove the setting, in an administrator's PowerShell on the PC: "
            "Remove-ItemProperty -Path HKLM:\\SOFTWARE\\OpenSSH -Name DefaultShell",
        )
    if result.status == _NO_PROGRAM and "fleet-no-python" in output:
        raise DeviceError(
            "fleet needs Python on Windows, but the Windows PC has no Python",
            device=host,
            hint="run on the PC: winget install Python.Python.3.12 --architecture arm64 "
            "--scope machine",
        )


def arguments(words: Sequence[str]) -> str:
    """Return the arguments of a program as one text that it splits into exactly these words.

    The rules are those of the Microsoft C runtime and CommandLineToArgvW. Blanks separate
    arguments, double quotes keep them together, and a backslash is literal unless a quote follows.
    Raises InputError if the text is too long.
    """
    line = " ".join(quoted(word) for word in words)
    if len(line.encode("utf-16-le", "surrogatepass")) // 2 > _LONGEST:
        raise InputError(
            f"a command line of {len(line)} characters is too long for Windows "
            f"(at most {_LONGEST})",
            hint="write long texts to a file, and pass the path of the file",
        )
    return line


def quoted(word: str) -> str:
    """Quote one argument."""
    if _PLAIN.fullmatch(word):
        return word
    doubled = re.sub(r'(\\*)"', r'\1\1\\"', word)
    return '"' + re.sub(r"(\\+)$", r"\1\1", doubled) + '"'


def program(name: str) -> str:
    """Return a program's name. Raises InputError for a batch file, which cmd.exe would
    interpret.
    """
    if name.rstrip(" .").lower().endswith(_BATCH):
        raise InputError(
            f"fleet does not start the batch file {name}, because cmd.exe would run its "
            "arguments as code",
            hint="give the program (.exe) that the batch file starts",
        )
    return name


def _job(command: Command) -> bytes:
    if command.call is not None:
        asked = on_windows(command.call)
        if asked.script:
            return _framed("script", asked.script, *asked.argv)
        return _start(command, asked.argv) + asked.head
    if command.argv[0] == "sh":
        raise InputError(
            "fleet cannot run this command on a Windows device, because the command needs a "
            "POSIX shell",
            hint="use a Linux board or an Android phone; docs/platforms.md lists what works on "
            "Windows",
        )
    return _start(command, command.argv)


def _start(command: Command, argv: tuple[str, ...]) -> bytes:
    pairs = [text for pair in command.env.items() for text in pair]
    names = command.unset
    fields = (program(argv[0]), arguments(argv[1:]), str(len(names)), *names, *pairs)
    return _framed("run", command.cwd, *fields)


def _framed(*fields: str) -> bytes:
    try:
        data = "\0".join(fields).encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"a path or an argument is not valid UTF-8: {error.object[:80]!r}",
            hint="rename the file to a name in UTF-8",
        ) from error
    return f"fleet1 {len(data):08d}\n".encode() + data
