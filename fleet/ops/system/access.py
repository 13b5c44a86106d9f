"""Who may open a device node: what its bits say, and what udev rules would make of them."""

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
# The event that applies rules to nodes that are there. The public rules for FastRPC match it and
# no other (qualcomm/fastrpc debian/fastrpc-support.udev, files/60-fastrpc.rules); a boot makes it.
ACTION = "add"
RETRY = "change"  # once, where `add` did not give what the rules say
MARK = "/run/fleet-udev-"  # and the event: it was made since this boot
# udevd looks up the groups of rules when it reads them, and since 2023 a reload reads none where no
# rule file changed: it would go on without a group that came later (systemd src/udev/udevd.c). A
# new file is a change; an empty one is passed over.
ANEW = "/run/udev/rules.d/fleet-anew.rules"

_TERM = re.compile(r'\s*([A-Z_]+(?:\{[^}]*\})?)\s*(==|!=|\+=|:=|=)\s*"((?:[^"\\]|\\.)*)"\s*,?')


def nodes(facts: Facts, paths: Iterable[str]) -> list[DeviceNode]:
    """The nodes of these paths that are there."""
    wanted = tuple(paths)
    return [node for node in facts.nodes if node.path in wanted and node.exists]


def readable(mode: str | None, owner_is_user: bool, in_group: bool) -> bool:
    """What the bits say. Reading is enough: the client opens with O_NONBLOCK only, the heap
    with O_RDONLY (qualcomm/fastrpc src/fastrpc_apps_user.c, src/rpcmem_linux.c).
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
    """(group, mode) that the rules give a node, later files winning; None when none names it.

    Only matches by KERNEL, SUBSYSTEM and ACTION are read (`add` is what we trigger); a rule with
    another condition is left out. Without `setfacl` on the device no rule gives an access list.
    """
    name = node.removeprefix("/dev/")
    subsystem = "dma_heap" if name.startswith("dma_heap/") else None
    kernel = name.rpartition("/")[2]
    group: str | None = None
    mode: str | None = None
    found = False
    for rule in sorted(rules, key=lambda one: one.path.rpartition("/")[2]):
        for line in rule.lines:
            terms = _TERM.findall(line)
            if not _matches(terms, kernel, subsystem):
                continue
            for key, operator, value in terms:
                if operator not in {"=", ":="}:
                    if setfacl and key.startswith("RUN") and "setfacl" in value:
                        acl = re.search(r"g:([^:]+):r", value)
                        group, mode, found = (acl[1], "0660", True) if acl else (group, mode, found)
                    continue
                if key == "GROUP":
                    group, found = value, True
                elif key == "MODE":
                    mode, found = value, True
    return (group, mode) if found else None


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
