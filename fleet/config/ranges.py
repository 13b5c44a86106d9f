"""Host names with ranges, as Ansible expands them: `evk[01:30]`, `[a:f]`, `[1:10:2]`."""

from __future__ import annotations

import re
import string
from itertools import product

from fleet.model.errors import InventoryError

MAX_HOSTS = 10_000  # hosts of one pattern; the design's largest lab has 200 boards

_RANGE = re.compile(
    r"\[(?P<first>[0-9]*|[A-Za-z]):(?P<last>[0-9]+|[A-Za-z])(?::(?P<step>[0-9]+))?\]"
)


def expand(pattern: str) -> tuple[str, ...]:
    """Return all names of a pattern, the last range varying fastest. Without ranges, return the
    name.

    A first number with leading zeros fixes the width. Raises InventoryError for a range that runs
    backwards, mixes letters and digits or names more than MAX_HOSTS hosts.
    """
    parts: list[range | list[str]] = []
    fixed: list[str] = []
    widths: list[int] = []
    end, total = 0, 1
    for match in _RANGE.finditer(pattern):
        values, width = _values(match)
        total *= len(values)
        if total > MAX_HOSTS:
            raise InventoryError(
                f"'{pattern}' names more than {MAX_HOSTS} hosts", hint="write a smaller range"
            )
        fixed.append(pattern[end : match.start()])
        parts.append(values)
        widths.append(width)
        end = match.end()
    names = []
    for chosen in product(*parts):
        text = "".join(
            f"{before}{str(value).zfill(width)}"
            for before, value, width in zip(fixed, chosen, widths, strict=True)
        )
        names.append(text + pattern[end:])
    return tuple(names)


def _values(match: re.Match[str]) -> tuple[range | list[str], int]:
    first, last, step = match["first"] or "0", match["last"], int(match["step"] or 1)
    if step == 0:
        raise InventoryError(f"the range {match[0]} has the step 0", hint="use a step of 1 or more")
    if first.isdigit() != last.isdigit():
        raise InventoryError(
            f"the range {match[0]} mixes a letter and a number", hint="write [1:9] or [a:f]"
        )
    if not first.isdigit():
        letters = string.ascii_letters
        start, stop = letters.index(first), letters.index(last)
        if start > stop:
            raise _backwards(match[0])
        return list(letters[start : stop + 1 : step]), 0
    width = len(first) if len(first) > 1 and first.startswith("0") else 0
    if width and len(last) != width:
        wide = max(width, len(last))
        raise InventoryError(
            f"the two ends of the range {match[0]} do not have the same number of digits",
            hint=f"write [{first.zfill(wide)}:{last.zfill(wide)}]",
        )
    if int(first) > int(last):
        raise _backwards(match[0])
    return range(int(first), int(last) + 1, step), width


def _backwards(text: str) -> InventoryError:
    return InventoryError(f"the range {text} runs backwards", hint="write the smaller end first")


def split_port(name: str) -> tuple[str, int | None]:
    """Split a port off a name; names without a port and bare IPv6 addresses stay unchanged.

    `evk1:2222` → ("evk1", 2222), `[2001:db8::1]:22` → ("2001:db8::1", 22).
    """
    bracketed = re.fullmatch(
        r"\[([0-9A-Fa-f.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)\](?::(\d{1,5}))?", name
    )
    if bracketed:
        return bracketed[1], int(bracketed[2]) if bracketed[2] else None
    bare = _RANGE.sub("", name)
    if bare.count(":") != 1:
        return name, None
    before, _, port = name.rpartition(":")
    if before and port.isdigit() and 1 <= int(port) <= 65535:
        return before, int(port)
    return name, None
