"""The first inventory and playbook as texts with comments. The YAML library formats the values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import yaml

_WIDE = 10**6  # no line is folded
_BREAKS = set("\x85\u2028\u2029")  # each ends a line in YAML, also in a comment


@dataclass(frozen=True)
class FoundDevice:
    """A discovered device. `about` is its origin; `values` are keys of the inventory.

    `facts` are keys read from the device. They are written as comments, and a person decides to use
    them. A device that cannot be used (adb, an alias that is no address) is written as a comment.
    """

    name: str
    about: str
    values: dict[str, object] = field(default_factory=dict)
    usable: bool = True
    facts: dict[str, str] = field(default_factory=dict)


def project_text(inventory: str, playbook: str) -> str:
    """Return the text of fleet.yaml with comments."""
    values = _dump({"inventory": inventory, "playbook": playbook})
    return f"""{modeline("project", "")}
# What commands mean that are typed in this folder or below. Keys: docs/project.md
{values}
# runs: runs             # where records are kept; default: for this project, in FLEET_HOME
# parallel: 16
# repeats: 10
"""


def modeline(kind: str, above: str = "../") -> str:
    """Return the comment by which editors find a file's schema (`fleet config schema KIND`)."""
    return f"# yaml-language-server: $schema={above}schemas/{kind}.json"


def inventory_text(devices: Sequence[FoundDevice]) -> str:
    """Return the text of the inventory with comments."""
    lines = [
        modeline("inventory"),
        "# Devices. Keys: docs/inventory.md. Checked by: fleet config check FILE",
        "# Keys for all devices go under `vars`, like",
        "#   user: ubuntu",
        "#   become_password: env:BOARD_PASSWORD    # sudo's; never the password itself",
        "#   soc: QCS9075                           # for a board that does not tell its chip",
        "all:",
        "  hosts:",
    ]
    if not any(device.usable for device in devices):
        lines[-1] = "  hosts: {}"
        lines.append("    # evk-01: {host: 10.0.0.7, user: ubuntu}")
    for device in devices:
        mark = "" if device.usable else "# "
        body = _dump({device.name: dict(device.values) or None}).removesuffix(" null").split("\n")
        body += [f"  # {line}" for line in _dump(device.facts).split("\n") if device.facts]
        lines.append(f"    # {comment(device.about)}")
        lines += [f"    {mark}{line}" for line in body]
    return "\n".join(lines) + "\n"


def playbook_text(name: str, bundle: str, about: str, *, qairt: str = "", prompt: str = "") -> str:
    """Return the text of the playbook with comments.

    `bundle` may be a folder that does not exist yet; `qairt` is the version that compiled it.
    `prompt` is a file with a prompt. Both paths are relative to the playbook.
    """
    ask = _dump({"prompt_file": prompt}) if prompt else _PROMPT
    compiled = f": {comment(qairt)}" if qairt else ""
    return f"""{modeline("playbook")}
# What shall be true on the devices, and what to run there. Keys: docs/playbook.md
{_dump({"name": name})}

# {comment(about)}
{_dump({"bundle": bundle})}

# The QAIRT version that compiled the bundle{compiled}. Another one: "2.51.0", in quotes.
runtime: bundle

# fastrpc: auto        # install FastRPC and the libraries of QNN, give the user the rights

run:
  runner: genie
  {ask}
  max_tokens: 64
  warmups: 1
  repeats: 5
"""


_PROMPT = "prompt: |\n    What is an NPU? Answer in one sentence."


def comment(text: str) -> str:
    """Return the text in one line, without characters that could end a comment."""
    return "".join(char for char in " ".join(text.split()) if char.isprintable())


def as_yaml(value: object) -> str:
    """Return plain data as YAML, without the last line end."""
    text = str(yaml.safe_dump(value, sort_keys=False, width=_WIDE, allow_unicode=True))
    if _BREAKS & set(text):
        text = str(yaml.safe_dump(value, sort_keys=False, width=_WIDE))
    return text.rstrip("\n")


def _dump(value: Mapping[str, object]) -> str:
    return as_yaml(dict(value))
