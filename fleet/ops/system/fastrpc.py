"""FastRPC on a device: library, group, device rules, membership.

Everything is derived from the device: its nodes and their modes, its rules, its installed and
available packages. The table of packagings only describes packages that are not installed yet.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from fleet.model.facts import DeviceNode, Facts
from fleet.model.finding import Finding
from fleet.model.system import UDEV_RULES, FileSeen, RuleSeen, SystemSpec, SystemState, WantedFile
from fleet.ops.system.access import ACTION, CDSP, DENIED, HEAP, RETRY, nodes, readable, ruled
from fleet.ops.system.packaging import (
    BSP,
    UPSTREAM,
    Packaging,
    Version,
    installed,
    offered,
    packagings,
    source_known,
)

RULE_FILE = f"{UDEV_RULES}99-fleet-fastrpc.rules"
DEFAULT_GROUP = "fastrpc"
LIBRARY = "libcdsprpc.so"
NOTHING = FileSeen()
# Units that can be neither enabled nor disabled: nothing to install (man systemctl).
FIXED_UNITS = {"static", "generated", "transient", "indirect"}
# System libraries that libQnnSystem and the libraries of QAIRT's Linux targets load, by package
# (data/runtime_files.yaml, needs_on_device). Debian, Ubuntu and Yocto use the same names.
QNN_PACKAGES = {"libatomic1": "libatomic", "libstdc++6": "libstdcpp"}
_OWN = {
    "fastrpc": 'KERNEL=="fastrpc-*", KERNEL!="*-secure"',
    "adsprpc": 'KERNEL=="adsprpc-smd*", KERNEL!="*-secure"',
    "dma_heap": 'SUBSYSTEM=="dma_heap", KERNEL=="system|qcom,system"',
}


@dataclass(frozen=True)
class FastRpc:
    """The missing parts of FastRPC.

    `apply_to` are kernel names of nodes whose rules must be applied by the event `action`; `waits`
    are nodes for which only a boot can do that. `link` is the versioned library to link, "" for the
    one that the packages will install, None if no link is needed. `group` None: no membership is
    needed.
    """

    packaging: Packaging
    packages: tuple[str, ...] = ()
    group: str | None = None
    rule: WantedFile | None = None
    apply_to: tuple[str, ...] = ()
    action: str = ACTION
    waits: tuple[str, ...] = ()
    link: str | None = None
    findings: tuple[Finding, ...] = ()


def fastrpc(spec: SystemSpec, facts: Facts, state: SystemState, *, reload: bool = False) -> FastRpc:
    """Return what this device lacks for a FastRPC session of the deploy user.

    `reload`: rules of the spec are going to be written, and all rules are then applied.
    """
    chosen, lacking = _packaging(spec, facts, state)
    need = FastRpc(chosen)
    if lacking and chosen.packages and not source_known(chosen, spec, state):
        return replace(need, findings=(_no_source(chosen),))
    if lacking:
        need = _with_library(need, spec, state)
    elif not facts.libcdsprpc_unversioned:
        need = replace(need, link=facts.libcdsprpc[0])
    gives = _version(chosen, state)
    setfacl = has_setfacl(spec, state, need.packages)
    brings = bool(need.packages and gives.rules)
    view = _View(spec, facts, state, reload, setfacl, gives if brings else None)
    need = _warn_of_unit(_with_rights(need, view), state)
    return replace(need, packages=(*need.packages, *_qnn_packages(spec, facts, state)))


def _qnn_packages(spec: SystemSpec, facts: Facts, state: SystemState) -> tuple[str, ...]:
    """Return the packages of libraries that QNN needs and the device is known to lack."""
    local = {deb.name.split("_")[0] for deb in spec.debs}
    return tuple(
        name
        for name, fact in QNN_PACKAGES.items()
        if state.manager is not None and getattr(facts, fact) is False and name not in local
    )


def has_setfacl(spec: SystemSpec, state: SystemState, also: tuple[str, ...]) -> bool:
    """Return True if setfacl exists when the rules are applied. `also` are packages of the
    recipe.
    """
    wanted = [name.partition("=")[0] for name in (*also, *spec.packages)]
    wanted += [deb.name.split("_")[0] for deb in spec.debs]
    return "setfacl" in state.tools or "acl" in wanted


@dataclass(frozen=True)
class _View:
    """The device as the rules will find it; `comes` are the packages that install rules."""

    spec: SystemSpec
    facts: Facts
    state: SystemState
    reload: bool
    setfacl: bool
    comes: Version | None = None

    @property
    def rules(self) -> tuple[RuleSeen, ...]:
        """The existing rules and those of packages; rules of the spec replace them."""
        own = {UDEV_RULES + name: text for name, text in self.spec.rules.items()}
        hidden = {path.rpartition("/")[2] for path in own}
        kept = [rule for rule in self.state.rules if rule.path.rpartition("/")[2] not in hidden]
        kept += [_rules_of(self.comes)] if self.comes is not None else []
        return (*kept, *(RuleSeen(path, tuple(text.splitlines())) for path, text in own.items()))

    def given(self, node: DeviceNode) -> tuple[str | None, str | None] | None:
        """Return (group, mode) of a node from the rules, None if no rule names it."""
        return ruled(node.path, self.rules, setfacl=self.setfacl)

    def refused(self, paths: tuple[str, ...]) -> list[DeviceNode]:
        """Return the nodes that refuse the deploy user, now or after the rules; [] if one node
        opens.

        A secure node does not count next to its plain sibling: vendors reserve it for their daemons
        (qualcomm/fastrpc files/60-fastrpc.rules).
        """
        there = nodes(self.facts, paths)
        refusing = [node for node in there if self._refuses(node)]
        if len(refusing) < len(there):
            return []
        return [node for node in refusing if not secure(node)] or refusing

    def _refuses(self, node: DeviceNode) -> bool:
        """Return True if a node refuses now, or after this deploy or the next boot applies the
        rules.
        """
        now = node.open_error in DENIED
        given = self.given(node) if self.reload or self.comes else None
        if given is None or self.facts.user.uid == 0:
            return now
        group, mode = given[0] or node.group, given[1] or node.mode
        later = not readable(mode, False, group in self.facts.user.groups_db)
        return later or (now and not self.reload)


def _packaging(spec: SystemSpec, facts: Facts, state: SystemState) -> tuple[Packaging, bool]:
    """Return the packaging of this device, and True if its library is missing."""
    rows = packagings()
    if facts.libcdsprpc:
        old = nodes(facts, CDSP[2:]) and not nodes(facts, CDSP[:2])
        return installed(state) or rows[BSP if old else UPSTREAM], False
    return offered(spec, state, facts.soc.model) or rows[UPSTREAM], True


def _with_library(need: FastRpc, spec: SystemSpec, state: SystemState) -> FastRpc:
    if not need.packaging.packages:
        return replace(need, findings=(_no_packages(state),))
    local = {deb.name.split("_")[0] for deb in spec.debs}
    more = [name for name in need.packaging.companions if not state.installed(name)]
    names = [name for name in (*need.packaging.packages, *more) if name not in local]
    return replace(need, packages=tuple(n for n in names if not state.installed(n)), link="")


def _no_packages(state: SystemState) -> Finding:
    known = ", ".join(
        f"{packaging.id} ({' '.join(packaging.packages)})"
        for packaging in packagings().values()
        if packaging.packages
    )
    unread = state.manager is not None and not state.lists
    return Finding(
        rule="fastrpc-packages",
        severity="refuse",
        message="libcdsprpc is not installed, and "
        + ("the device has no package lists yet" if unread else "no package source offers FastRPC"),
        have=_foreign(state)
        or (f"no FastRPC package in {state.manager}" if state.manager else "no package manager"),
        need=f"one of {known}",
        cure=(
            "run `sudo apt-get update` on the device, or name the packaging in the playbook "
            "(`fastrpc: debian`)"
        )
        if unread
        else (
            "add a repository or a folder of .deb files under `system:` in the playbook, or "
            "use a system image with FastRPC"
        ),
        source="docs/sources/deployment.md 6",
    )


def _no_source(packaging: Packaging) -> Finding:
    tutorial = (
        f", or run on the device, as the tutorial says: {packaging.setup}"
        if packaging.setup
        else ""
    )
    return Finding(
        rule="fastrpc-source",
        severity="refuse",
        message="no package source of the device or the playbook offers the FastRPC packaging "
        f"{packaging.id} that the playbook asks for",
        have=f"no package source of {packaging.title}",
        need=" ".join(packaging.packages),
        cure="add the package source and its key to `system.repositories` in the "
        f"playbook{tutorial}",
        source=packaging.versions[0].source,
    )


def _foreign(state: SystemState) -> str:
    """Return FastRPC packages for another architecture than the device's own, as text."""
    wanted = {name for packaging in packagings().values() for name in packaging.packages}
    foreign = [name for name in state.packages if name.partition(":")[0] in wanted and ":" in name]
    return f"only for another architecture: {', '.join(sorted(foreign))}" if foreign else ""


def _version(packaging: Packaging, state: SystemState) -> Version:
    """Return what a packaging does in the installed or available version."""
    versions = [state.installed(name) or state.candidate(name) for name in packaging.packages]
    return packaging.at(next((version for version in versions if version), None))


def _rules_of(version: Version) -> RuleSeen:
    """Return the udev rules that the packages of this version install."""
    group = version.group or DEFAULT_GROUP
    lines = []
    for match, mode in (("!=", version.node), ("==", version.secure)):
        if mode is not None:
            nodes = f'KERNEL=="fastrpc-*", KERNEL{match}"*-secure"'
            lines.append(f'{nodes}, GROUP="{group}", MODE="{mode}"')
    if version.heap:
        heap = 'SUBSYSTEM=="dma_heap", KERNEL=="system|qcom,system"'
        lines.append(f'{heap}, RUN+="setfacl -m g:{group}:rw"')
    return RuleSeen("/usr/lib/udev/rules.d/60-fastrpc.rules", tuple(lines))


def _with_rights(need: FastRpc, view: _View) -> FastRpc:
    """Add group, rule and trigger for the nodes that refuse the deploy user."""
    refusing = [*view.refused(CDSP), *view.refused(HEAP)]
    if not refusing:
        return need
    group = _group(need, refusing, view)
    apply_to = []
    lacking: set[str] = set()
    member = False
    for node in refusing:
        given = view.given(node)
        owner, mode = given or (None, None)
        opens = _would_open(mode or node.mode, owner or node.group, group, view.facts)
        if given is None and opens:
            member = True
        elif given is not None and opens:
            member = member or not readable(given[1] or node.mode, False, False)
            if not _is_as(node, given):
                apply_to.append(_name(node))
        elif not secure(node):
            member = True
            apply_to.append(_name(node))
            lacking.add(_kind(node.path))
    need = replace(
        need,
        group=group if member else None,
        rule=own_rule(group, lacking | _ruled_by_us(view.state)) if lacking else None,
        apply_to=tuple(dict.fromkeys(apply_to)),
    )
    return _by_the_next_event(need, view)


def _by_the_next_event(need: FastRpc, view: _View) -> FastRpc:
    """Retry rules that one event did not apply with another event, once; then require a boot."""
    tried = view.state.tried
    late_group = need.group is not None and view.state.groups.get(need.group, ()) is None
    if need.packages or need.rule or view.reload or late_group or not tried:
        return need
    if RETRY not in tried:
        return replace(need, action=RETRY)
    if not need.apply_to:
        return need
    finding = Finding(
        rule="device-rules-wait",
        severity="warn" if view.spec.reboot else "refuse",
        message="the udev rules are installed, but the device nodes still have their old rights; a "
        "reboot applies the rules",
        have=f"unchanged: {', '.join(need.apply_to)}",
        need="a reboot",
        cure="run `sudo reboot` on the device, or write `reboot: true` in `system:` of the "
        "playbook "
        "and give --allow-reboot",
        source="qualcomm/fastrpc files/60-fastrpc.rules: only the event `add` matches",
    )
    findings = (*need.findings, finding)
    return replace(need, apply_to=(), waits=need.apply_to, findings=findings)


def _name(node: DeviceNode) -> str:
    """Return the name for udev's trigger: all FastRPC nodes together, a heap by its name."""
    name = node.path.rpartition("/")[2]
    return "fastrpc-*" if name.startswith("fastrpc-") else name


def _would_open(mode: str | None, owner_group: str | None, group: str, facts: Facts) -> bool:
    """Return True if mode and group let a member of `group` read."""
    member = owner_group == group or owner_group in facts.user.groups_db
    return readable(mode, facts.user.uid == 0, member)


def _is_as(node: DeviceNode, given: tuple[str | None, str | None]) -> bool:
    """Return True if the node already is as the rules define it."""
    same_mode = given[1] is None or given[1].lstrip("0") == (node.mode or "").lstrip("0")
    return same_mode and given[0] in {None, node.group}


def _group(need: FastRpc, refusing: list[DeviceNode], view: _View) -> str:
    """Return the group that the user should join: that of the rules, or the node's own without one.

    A group that is root, has no name, or may not read the node is skipped. If no group is left,
    returns that of the packaging.
    """
    for node in refusing:
        given = view.given(node)
        if given is None:
            if _usable(node.group) and readable(node.mode, False, True):
                return str(node.group)
        elif _usable(given[0]) and readable(given[1] or node.mode, False, True):
            return str(given[0])
    return _version(need.packaging, view.state).group or DEFAULT_GROUP


def _usable(group: str | None) -> bool:
    """Return True for a group that users can join.

    A nameless one is UNKNOWN (stat) or a number (ls).
    """
    return group not in {None, "", "root", "UNKNOWN"} and not str(group).isdigit()


def secure(node: DeviceNode) -> bool:
    """Return True for a node for signed code of the vendor."""
    return node.path.endswith("-secure")


def _kind(path: str) -> str:
    return next(kind for kind in _OWN if kind in path)


def _ruled_by_us(state: SystemState) -> set[str]:
    """Return the kinds of nodes that fleet's rule file on the device already covers."""
    text = (state.files.get(RULE_FILE, NOTHING).content or b"").decode("utf-8", "replace")
    return {kind for kind in _OWN if kind in text.partition("\n")[2]}


def own_rule(group: str, kinds: Collection[str]) -> WantedFile:
    """Return a rule file that lets members of a group read nodes of these kinds, except secure
    ones.

    A FastRPC client opens for reading (`access.readable`).
    """
    head = f"# Written by fleet: members of {group} may use the compute DSP.\n"
    lines = [
        f'{match}, GROUP="{group}", MODE="0640"\n' for kind, match in _OWN.items() if kind in kinds
    ]
    return WantedFile(RULE_FILE, "".join([head, *lines]).encode())


def _warn_of_unit(need: FastRpc, state: SystemState) -> FastRpc:
    """Warn about an inactive daemon; calls work without it (docs/sources/deployment.md 6).

    A static unit cannot be enabled: device rules start it with ENV{SYSTEMD_WANTS} (qualcomm/fastrpc
    files/60-fastrpc.rules since 1.0.8).
    """
    unit = need.packaging.unit
    unit_state = state.units.get(unit or "")
    if (
        unit is None
        or unit_state is None
        or unit_state.load != "loaded"
        or unit_state.active == "active"
    ):
        return need
    verb = "start" if unit_state.enabled in FIXED_UNITS else "enable --now"
    finding = Finding(
        rule="cdsprpcd-inactive",
        severity="warn",
        message=f"the service {unit} is {unit_state.active or 'unknown'}, so the DSP cannot write "
        "logs or "
        "read files",
        have=unit_state.active or "unknown",
        need="active",
        cure=f"sudo systemctl {verb} {unit} (on the device; NPU sessions work without the service)",
        source="docs/sources/deployment.md 6",
    )
    return replace(need, findings=(*need.findings, finding))
