"""A stand-in for Windows behind a real sshd: cmd.exe and powershell.exe, as far as fleet uses them.

sshd's ForceCommand starts this file. It takes SSH_ORIGINAL_COMMAND as cmd.exe would (length,
characters that cmd.exe reads as syntax), decodes -EncodedCommand, and wants exactly fleet's
bootstrap. Then it does what that script does, in Python: no PowerShell runs here. The command
line of a program is split by the rules of Microsoft's C runtime, written down once more here, from
their documentation. A script (the facts) is answered from the file $STANDIN_FACTS.

    standin.py [--shell powershell] [--no-python]
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path

LONGEST = 8191


def fail(status: int, text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
    os._exit(status)


def split(line: str) -> list[str]:
    """Arguments of a command line (Microsoft, "Parsing C command-line arguments")."""
    found: list[str] = []
    word: list[str] = []
    inside = began = False
    at = 0
    while at < len(line):
        slashes = 0
        while at < len(line) and line[at] == "\\":
            slashes, at = slashes + 1, at + 1
        if at < len(line) and line[at] == '"':
            word.append("\\" * (slashes // 2))
            if slashes % 2:
                word.append('"')
                at += 1
                continue
            began = True
            if inside and line[at + 1 : at + 2] == '"':
                word.append('"')
                at += 2
                continue
            inside = not inside
            at += 1
            continue
        word.append("\\" * slashes)
        if at == len(line):
            break
        if line[at] in " \t" and not inside:
            if word and (began or "".join(word)):
                found.append("".join(word))
            word, began = [], False
        else:
            word.append(line[at])
        at += 1
    if began or "".join(word):
        found.append("".join(word))
    return found


def take(count: int, shell: str) -> bytes:
    data = b""
    while len(data) < count:
        piece = os.read(0, count - len(data))
        if not piece:
            fail(97, f"fleet-stdin-lost {shell}")
        data += piece
    return data


def fields_of(shell: str) -> list[str]:
    head = take(16, shell).decode("ascii")
    if not (head.startswith("fleet1 ") and head.endswith("\n")):
        fail(97, "fleet-stdin-lost ?")
    return take(int(head[7:15]), shell).decode("utf-8").split("\0")


def start(words: list[str], python: bool) -> int:
    _, folder, program, line, count, *rest = words
    if program == "python3":
        if not python:
            fail(127, "fleet-no-python")
        program = sys.executable
    if folder and not Path(folder).is_dir():
        fail(126, f"no folder {folder}")
    env = dict(os.environ)
    for name in rest[: int(count)]:
        env.pop(name, None)
    pairs = rest[int(count) :]
    env |= dict(zip(pairs[::2], pairs[1::2], strict=True))
    argv = split(line)
    try:
        return subprocess.call([program, *argv], cwd=folder or None, env=env)
    except OSError as error:
        fail(127, f"cannot start {program}: {error}")
    return 127


def main() -> None:
    shell = "powershell.exe" if "--shell" in sys.argv else ""
    line = os.environ.get("SSH_ORIGINAL_COMMAND", "")
    if len(line) > LONGEST:
        fail(1, "The command line is too long.")
    if set(line) & set("%^&|<>()!\"'`$;,"):
        fail(1, f"cmd.exe would read this: {line[:100]}")
    name, *options, text = line.split(" ")
    if name != "powershell.exe" or options[-1] != "-EncodedCommand":
        fail(1, f"'{name}' is not recognized as an internal or external command,")
    wanted = ["-InputFormat", "None"]
    if not any(options[n : n + 2] == wanted for n in range(len(options))):
        fail(1, "PowerShell would read standard input itself")
    code = base64.b64decode(text, validate=True).decode("utf-16-le")
    source = Path(os.environ["STANDIN_BOOTSTRAP"]).read_text("utf-8")
    kept = [one for one in source.splitlines() if not one.lstrip().startswith("#")]
    if code != "\n".join(kept):
        fail(1, "another script than bootstrap.ps1")
    if shell:  # the outer PowerShell has read it all
        while os.read(0, 1 << 16):
            pass
    words = fields_of(shell)
    if words[0] == "script":
        folder = os.environ.get("STANDIN_FACTS", "")
        known = Path(os.environ["STANDIN_PROBE"]).read_text("utf-8")
        if words[1] != known:
            fail(1, "another script than probe.ps1")
        base = words[2] or os.environ.get("STANDIN_BASE", "")
        answer = Path(folder).read_text("utf-8").replace("@BASE@", base)
        store = "yes" if Path(base, "store").is_dir() else "no"
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        answer = answer.replace("boot-42", boot)
        sys.stdout.write(answer.replace("@STORE@", store))
        sys.stdout.flush()
        os._exit(0)
    if words[0] != "run":
        fail(1, f"no such job: {words[0]}")
    os._exit(start(words, "--no-python" not in sys.argv) & 0xFFFFFFFF & 0xFF)


if __name__ == "__main__":
    main()
