"""The page docs/troubleshooting.md, made of the cause files: `python -m fleet.doctor.page FILE`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from fleet.model.cause import LAYERS, Cause, Fix
from fleet.model.errors import FleetError
from fleet.model.slots import filled
from fleet.triage.knowledge import knowledge

_HEAD = """# Troubleshooting

This page is generated from `fleet/data/causes/*.yaml` by `python -m fleet.doctor.page FILE`.

For a log, type `fleet doctor --log FILE`; no device is needed. For a device, type
`fleet doctor -i INVENTORY`. For a number, type `fleet doctor --explain 14001`. The layers are
listed in the order in which fleet checks them. A fault in one layer makes later layers fail, so
repair the first broken layer first.
"""
_ABOUT = {
    "host": "The workstation",
    "link": "The way to the device",
    "os": "The operating system",
    "user": "User and groups",
    "nodes": "Device nodes",
    "library": "libcdsprpc",
    "daemon": "Daemons",
    "dsp": "The DSP",
    "runtime": "The QAIRT runtime",
    "bundle": "The bundle",
    "session": "The session",
}


def page(causes: Iterable[Cause]) -> str:
    """Return the whole page."""
    every = list(causes)
    parts = [_HEAD, _codes(every)]
    for layer in LAYERS:
        mine = [cause for cause in every if cause.layer == layer]
        if mine:
            parts.append(f"## {_ABOUT[layer]}\n")
            parts += [_cause(cause) for cause in mine]
    return filled("\n".join(parts).rstrip() + "\n", {})


def cause_page(cause: Cause) -> str:
    """Return the page of the site for one cause, with links to the pages of the others."""
    text = _cause(cause).replace("### ", "# ", 1).replace("](#", "](")
    return filled(re.sub(r"\]\(([a-z0-9-]+)\)", r"](\1.md)", text), {})


def _codes(causes: list[Cause]) -> str:
    """Return the table of codes with their causes, which people look for first."""
    links: dict[str, list[str]] = {}
    for cause in causes:
        for code in cause.codes:
            links.setdefault(code, []).append(f"[{cause.id}](#{cause.id})")
    rows = [f"| `{code}` | {', '.join(links[code])} |" for code in sorted(links, key=_order)]
    return "\n".join(["## Codes\n", "| code | causes |", "|---|---|", *rows, ""])


def _order(code: str) -> tuple[int, int, str]:
    bare = code.removeprefix("-")
    if bare.isdigit():
        return (0, int(bare), code)
    return (1, int(code, 16), code) if code.startswith("0x") else (2, 0, code)


def _cause(cause: Cause) -> str:
    lines = [f"### {cause.id}\n", f"**{cause.title}.** {' '.join(cause.explanation.split())}\n"]
    shown = next((example.log.strip() for example in cause.examples if example.log), "")
    if shown:
        lines.append("\n".join(["```", *shown.split("\n"), "```", ""]))
    lines += [_fix(fix) for fix in cause.fix]
    lines.append(f"- check: `{cause.verify}`")
    for twin in cause.twins:
        test = f"`{twin.command}`" if twin.command else "look in the log"
        lines.append(f"- like [{twin.cause}](#{twin.cause}); {test}: {twin.reading}")
    links = [source for source in cause.sources if source.startswith("http")]
    if links:
        lines.append("- sources: " + ", ".join(f"<{link}>" for link in links))
    return "\n".join(lines) + "\n"


def _fix(fix: Fix) -> str:
    marks = [word for word in (fix.platform if fix.platform != "any" else "", fix.where) if word]
    marks += ["as root"] * fix.needs_root + ["reboot"] * fix.reboot
    marks += [] if fix.reversible else ["no way back"]
    marks += [f"`fleet doctor --fix` does it ({fix.apply})"] if fix.apply else []
    if fix.unless:
        marks.append(f"not where `{fix.unless.fact}` is {' or '.join(fix.unless.values)}")
    if fix.when:
        marks.append(f"only where `{fix.when.fact}` is like {_or(fix.when.values)}")
    back = f"; back: {fix.undo}" if fix.undo else ""
    text = f"- fix ({', '.join(marks)}): {fix.title} (changes: {fix.changes}{back})"
    return text + "".join(f"\n  `{line}`" for line in fix.command.splitlines() if line.strip())


def _or(words: tuple[str, ...]) -> str:
    return " or ".join(f"`{word}`" if word else "unknown" for word in words)


if __name__ == "__main__":
    try:
        text = page(knowledge().causes.values())
    except FleetError as error:
        sys.exit(f"error: {error}\n  try: {error.hint}")
    Path(sys.argv[1]).write_text(text, "utf-8")
