"""The files of an ssh config: `Include` as in ssh_config(5), and the hosts that it names."""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

USER_FOLDER = Path("~/.ssh")
_INCLUDE = re.compile(r"(?i)^[ \t]*include(?:[ \t]+|[ \t]*=[ \t]*)(.+)$")
_BLOCK = re.compile(r"(?i)^\s*(?:host|match)[\s=]")
_HOST = re.compile(r"(?i)^\s*host(?:\s+|\s*=\s*)(.+?)\s*(?:#.*)?$")


def expanded(path: Path, above: tuple[Path, ...] = (), within: str = "") -> str:
    """Return the text of an ssh config with the text of all files that it includes.

    An included file counts only if its `Include` does: its blocks get `within`, the conditions of
    the blocks around the `Include`, too. After the file, the block of the `Include` continues. A
    file does not include one of `above`, the files that include it. Raises OSError and ValueError
    for a file that cannot be read.
    """
    lines, block = list[str](), "Host *"
    start = f"Match {within}" if within else block
    for line in path.read_text("utf-8").splitlines():
        if _BLOCK.match(line):
            block, start = line, f"Match {_conditions(within, line)}" if within else line
            lines.append(start)
        elif include := _INCLUDE.match(line):
            for file in _files(include[1]):
                if file not in (*above, path):
                    lines += [expanded(file, (*above, path), _conditions(within, block)), start]
        else:
            lines.append(line)
    return "\n".join(lines)


def _conditions(within: str, block: str) -> str:
    """Return `within` and the conditions of a `Host` or `Match` line for `Match`; "" for all."""
    words = shlex.split(_BLOCK.sub("", block).lstrip("= \t"), comments=True)
    if _HOST.match(block):
        words = ["originalhost", ",".join(words)] if words != ["*"] else []
    own = "" if [word.lower() for word in words] == ["all"] else shlex.join(words)
    return f"{within} {own}".strip()


def with_included(path: Path) -> list[Path]:
    """Return an ssh config and all files that it includes, each once. Raises as `expanded`."""
    files, waiting = list[Path](), [path]
    while waiting:
        file = waiting.pop(0)
        if file in files:
            continue
        files.append(file)
        for line in file.read_text("utf-8").splitlines():
            include = _INCLUDE.match(line)
            waiting += _files(include[1]) if include else []
    return files


def _files(patterns: str) -> Iterator[Path]:
    for pattern in shlex.split(patterns, comments=True):
        # Relative paths start from ~/.ssh, whichever file contains them: ssh_config(5).
        known = os.path.expanduser(pattern)  # noqa: PTH111 - ~nobody stays unchanged
        names = glob.glob(str(USER_FOLDER.expanduser() / known))  # noqa: PTH207 - no hidden files
        yield from sorted(file for file in map(Path, names) if file.is_file())


def lost_includes(path: Path) -> list[str]:
    """Return a remark for each `Include` that matches no file. Raises as `expanded`."""
    lines = [line for file in with_included(path) for line in file.read_text("utf-8").splitlines()]
    patterns = [include[1].strip() for line in lines if (include := _INCLUDE.match(line))]
    return [
        f"`Include {each}` in {path} matches no file; ssh takes relative paths from {USER_FOLDER}"
        for each in dict.fromkeys(patterns)
        if not list(_files(each))
    ]


def named_hosts(text: str) -> list[str]:
    """Return the aliases of an ssh config that stand for one host, without patterns.

    Raises ValueError for a quote that is not closed.
    """
    words = (word for line in text.splitlines() if (host := _HOST.match(line))
             for word in shlex.split(host[1], comments=True))  # fmt: skip
    return [word for word in dict.fromkeys(words) if not set(word) & set("*?!")]
