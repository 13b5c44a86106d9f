"""The first inventory and playbook as texts with comments; values go through the YAML library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import yaml

_WIDE = 10**6  # no line is folded


class Device(Protocol):
    """What the inventory text needs of a device (devices.Seen)."""

    @property
    def name(self) -> str:
        """Name of the host."""

    @property
    def about(self) -> str:
        """Where it was seen."""

    @property
    def values(self) -> Mapping[str, object]:
        """Its keys."""

    @property
    def usable(self) -> bool:
        """False: it is written as a comment."""

    @property
    def facts(self) -> Mapping[str, str]:
        """Keys that are written as comments."""


def inventory_text(devices: Sequence[Device]) -> str:
    """The inventory with comments."""
    lines = [
        "# Devices. Keys: docs/inventory.md. Checked by: fleet inventory check FILE",
        "# Keys for all of them go under `vars`, like",
        "#   user: ubuntu",
        "#   become_password: env:BOARD_PASSWORD    # sudo's; never the password itself",
        "#   soc: QCS9075                           # where the board hides its chip",
        "all:",
        "  hosts:",
    ]
    if not any(one.usable for one in devices):
        lines[-1] = "  hosts: {}"
        lines.append("    # evk-01: {host: 10.0.0.7, user: ubuntu}")
    for one in devices:
        mark = "" if one.usable else "# "
        body = _dump({one.name: dict(one.values) or None}).removesuffix(" null").split("\n")
        body += [f"  # {line}" for line in _dump(one.facts).split("\n") if one.facts]
        lines.append(f"    # {comment(one.about)}")
        lines += [f"    {mark}{line}" for line in body]
    return "\n".join(lines) + "\n"


def playbook_text(name: str, bundle: str, about: str, *, qairt: str = "", prompt: str = "") -> str:
    """The playbook with comments.

    `bundle` may be a folder that is yet to be made; `qairt` the version that compiled it;
    `prompt` a file with a prompt, both paths relative to the playbook.
    """
    ask = _dump({"prompt_file": prompt}) if prompt else _PROMPT
    compiled = f": {comment(qairt)}" if qairt else ""
    return f"""# What shall be true on the devices, and what to run there. Keys: docs/playbook.md
{_dump({"name": name})}

# {comment(about)}
{_dump({"bundle": bundle})}

# The QAIRT version that compiled the bundle{compiled}. Another one: "2.51.0", in quotes.
runtime: bundle

# fastrpc: auto        # install FastRPC and give the user its rights where they lack
# system:
#   packages: [libatomic1]

run:
  runner: genie
  {ask}
  max_tokens: 64
  warmups: 1
  repeats: 5
"""


_PROMPT = "prompt: |\n    What is an NPU? Answer in one sentence."


def comment(text: str) -> str:
    """One line without what could end a comment."""
    return "".join(one for one in " ".join(text.split()) if one.isprintable())


def _dump(value: Mapping[str, object]) -> str:
    return str(yaml.safe_dump(dict(value), sort_keys=False, width=_WIDE)).rstrip("\n")
