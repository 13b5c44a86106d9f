"""The users who may open a device node: by its mode, and by the udev rules."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from fleet.model.facts import DeviceNode, Facts
from fleet.model.system import RuleSeen

CDSP = ("/dev/fastrpc-cdsp", "/dev/fastrpc-cdsp-secure", "/dev/adsprpc-smd")
HEAP = ("/dev/dma_heap/system", "/dev/dma_heap/qcom,system")
ACL = "access control list (ACL)"
DENIED = {"EACCES", "EPERM"}
# The event that applies rules to existing nodes. The public FastRPC rules match only this event
# (qualcomm/fastrpc debian/fastrpc-support.udev, files/60-fastrpc.rules), which a boot also causes.
ACTION = "add"
RETRY = "change"  # tried once if `add` did not have the effect of the rules
MARK = "/run/fleet-udev-"  # prefix of the event name: this event was sent since this boot
# udevd resolves groups when it reads rules. Since 2023 a reload reads no rules if no rule file
# changed, and so would ignore a group that was added later (systemd src/udev/udevd.c). A new file
# is a change; an empty one is ignored.
ANEW = "/run/udev/rules.d/fleet-anew.rules"

_TERM = re.compile(r'\s*([A-Z_]+(?:\{[^}]*\})?)\s*(==|!=|\+=|:=|=)\s*"((?:[^"\\]|\\.)*)"\s*,?')


def nodes(facts: Facts, paths: Iterable[str]) -> list[DeviceNode]:
    """Return the existing nodes of these paths."""
    wanted = tuple(paths)
    return [node for node in facts.nodes if node.path in wanted and node.exists]


def readable(mode: str | None, owner_is_user: bool, in_group: bool) -> bool:
    """Return True if the mode (octal text) allows the user to read the node; False if unknown.

    One triple of bits counts: the owner's with `owner_is_user`, else the group's with `in_group`,
    else that of the others.
    Reading is enough: the client opens with O_NONBLOCK only, the heap with O_RDONLY
    (qualcomm/fastrpc src/fastrpc_apps_user.c, src/rpcmem_linux.c).
    """
    try:
        bits = int(mode or "", 8)
    except ValueError:
        return False
    if owner_is_user:
        return bool(bits & 0o400)
    return bool(bits & 0o040) if in_group else bool(bits & 0o004)


def ruled(
    node: str, rules: Iterable[RuleSeen], *, setfacl: bool = True
) -> tuple[str | None, str | None] | None:
    """Return (group, mode) of a node from the rules, later files first; None if no rule names it.

    Only matches by KERNEL, SUBSYSTEM and ACTION are read (fleet triggers `add`). A rule with
    another condition is ignored. Without `setfacl` on the device no rule gives an access list.
    """
    name = node.removeprefix("/dev/")
    subsystem = "dma_heap" if name.startswith("dma_heap/") else None
    kernel = name.rpartition("/")[2]
    group: str | None = None
    mode: str | None = None
    named = False
    for rule in sorted(rules, key=lambda file: file.path.rpartition("/")[2]):
        for line in rule.lines:
            terms = _TERM.findall(line)
            if not _matches(terms, kernel, subsystem):
                continue
            for key, operator, value in terms:
                if operator not in {"=", ":="}:
                    if setfacl and key.startswith("RUN") and "setfacl" in value:
                        acl = re.search(r"g:([^:]+):r", value)
                        group, mode, named = (acl[1], "0660", True) if acl else (group, mode, named)
                    continue
                if key == "GROUP":
                    group, named = value, True
                elif key == "MODE":
                    mode, named = value, True
    return (group, mode) if named else None


def _matches(terms: list[tuple[str, str, str]], kernel: str, subsystem: str | None) -> bool:
    named = False
    for key, operator, value in terms:
        if operator not in {"==", "!="}:
            continue
        if key == "KERNEL":
            hit = any(fnmatchcase(kernel, pattern) for pattern in value.split("|"))
            named = named or operator == "=="
        elif key == "SUBSYSTEM":
            hit = value in {subsystem, "misc" if subsystem is None else subsystem}
            named = named or (operator == "==" and subsystem is not None)
        elif key == "ACTION":
            hit = any(fnmatchcase(ACTION, word) for word in value.split("|"))
        else:
            return False
        if hit != (operator == "=="):
            return False
    return named
