"""The ordered actions on the system of one device, from facts, state and the desired state."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleet.model.facts import Facts
from fleet.model.finding import Finding
from fleet.model.plan import Action
from fleet.model.system import (
    LOADER_CONF,
    REMOVE,
    UDEV_RULES,
    FileSeen,
    Repository,
    SystemSpec,
    SystemState,
    WantedFile,
)
from fleet.ops.system.access import ACTION, HEAP
from fleet.ops.system.fastrpc import FIXED_UNITS, LIBRARY, FastRpc, fastrpc, has_setfacl
from fleet.ops.system.packaging import qnn_packages
from fleet.ops.system.state import deb_name, repository_files, wanted_files
from fleet.ops.system.steps_files import (
    NOT_THERE,
    LinkLibrary,
    PlaceFiles,
    ReloadUdev,
    RunLdconfig,
    WriteFile,
)
from fleet.ops.system.steps_packages import (
    AddRepository,
    InstallPackages,
    RefreshPackages,
    RemovePackages,
    RepairPackages,
    key_path,
    list_path,
)
from fleet.ops.system.steps_users import (
    AddMember,
    CreateGroup,
    Reboot,
    Reconnect,
    ReloadUnits,
    SetUnit,
)

# Packages and their sources: add, refresh, install and remove.

Steps = tuple[list[Action], list[Action]]


def package_steps(
    spec: SystemSpec, state: SystemState, also: tuple[str, ...], base: str
) -> tuple[Steps, list[Finding]]:
    """Return (steps before groups are created, steps after), and the obstacles.

    `also` are packages that a recipe needs. If no list of the device contains a name, the lists are
    refreshed first.
    """
    if state.manager is None and (spec.packages or spec.debs or spec.repositories):
        return ([], []), [_no_manager(spec)]
    debs = [f"{base}/staged/{deb.name}" for deb in spec.debs if not _has_deb(state, deb.name)]
    names = [name for name in (*also, *spec.packages) if not _has(state, name)]
    names = list(dict.fromkeys(names))
    before: list[Action] = []
    halfway = sorted(name for name, package in state.packages.items() if not package.whole)
    if (names or debs) and halfway:
        before.append(RepairPackages(tuple(halfway)))
    added = [
        repository
        for repository in spec.repositories
        if not _has_repository(spec, state, repository)
    ]
    before += [
        AddRepository(repository, base, _repository_now(state, repository)) for repository in added
    ]
    unknown = [name for name in names if state.candidate(name.partition("=")[0]) is None]
    if added or unknown:
        before.append(RefreshPackages(state.manager or "apt"))
    after: list[Action] = []
    if debs:
        after.append(PlaceFiles(spec.debs, f"{base}/staged"))
    if names or debs:
        after.append(InstallPackages((*debs, *names), state.manager or "apt"))
    after += _removals(spec, state)
    return (before, after), [_not_listed(unknown)] if unknown and not added else []


def _has(state: SystemState, wish: str) -> bool:
    """Return True if `name` or `name=version` is installed."""
    name, _, version = wish.partition("=")
    there = state.installed(name)
    return there is not None and version in {"", there}


def _has_deb(state: SystemState, file_name: str) -> bool:
    package, version = deb_name(file_name)
    there = state.installed(package)
    return there is not None and there.rpartition(":")[2] == version


def _has_repository(spec: SystemSpec, state: SystemState, repository: Repository) -> bool:
    """Return True if both of its files exist with the desired content."""
    return all(
        (file := state.files.get(path)) is not None and file.content == content
        for path, content in repository_files(spec)[repository.name]
    )


def _repository_now(state: SystemState, repository: Repository) -> tuple[FileSeen, FileSeen]:
    key, source = key_path(repository.name), list_path(repository.name)
    return state.files.get(key, NOT_THERE), state.files.get(source, NOT_THERE)


def _removals(spec: SystemSpec, state: SystemState) -> list[Action]:
    if spec.distribution_qnn != REMOVE or state.manager != "apt":
        return []
    wanted = {name.partition("=")[0] for name in spec.packages}
    there = [(name, state.installed(name)) for name in qnn_packages() if name not in wanted]
    gone = tuple((name, version) for name, version in there if version is not None)
    return [RemovePackages(gone)] if gone else []


def _no_manager(spec: SystemSpec) -> Finding:
    wanted = [*spec.packages, *(deb.name for deb in spec.debs)]
    return Finding(
        rule="system-packages",
        severity="refuse",
        message="the playbook lists packages, but the device has neither apt nor opkg",
        have="no package manager",
        need=", ".join(wanted) or "a repository",
        cure="use a system image with these packages, or copy single files with `system.files` "
        "in the playbook",
    )


def _not_listed(names: list[str]) -> Finding:
    return Finding(
        rule="system-packages",
        severity="warn",
        message=f"the package lists of the device do not contain {', '.join(names)}; fleet will "
        "refresh the lists first",
        have="not listed",
        need=", ".join(names),
        cure="if the refreshed lists do not contain these packages either, add their repository "
        "under `system.repositories` in the playbook",
    )


_NO_FILE = {"folder": "is a folder", "other": "is neither a file, a folder nor a link"}
_UNITS = "/etc/systemd/system/"


@dataclass(frozen=True)
class SystemPlan:
    """The steps on the system in order, with findings and notes."""

    steps: tuple[Action, ...] = ()
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def needs_root(self) -> bool:
        """True if one of the steps runs as root."""
        return any(step.needs_root for step in self.steps)


@dataclass
class _Draft:
    spec: SystemSpec
    facts: Facts
    state: SystemState
    dsp: FastRpc | None
    findings: list[Finding] = field(default_factory=list)

    @property
    def base(self) -> str:
        return self.facts.base_dir

    @property
    def shadow_tools(self) -> bool:
        return "groupadd" in self.state.tools and "usermod" in self.state.tools


def provision(spec: SystemSpec, facts: Facts, state: SystemState) -> SystemPlan:
    """Return the steps that bring the system to the state in `spec`, none if it is there."""
    if spec.empty:
        return SystemPlan()
    draft = _Draft(spec, facts, state, None)
    writes = [*filter(None, (_write(draft, file) for file in wanted_files(spec)))]
    if spec.fastrpc != "off":
        reload = any(step.file.path.startswith(UDEV_RULES) for step in writes)
        draft.dsp = fastrpc(spec, facts, state, reload=reload)
        draft.findings += draft.dsp.findings
    dsp = draft.dsp
    members = _members(draft)
    packages, problems = package_steps(spec, state, dsp.packages if dsp else (), facts.base_dir)
    draft.findings += problems
    files = _files(draft, writes)
    steps: list[Action] = [
        *packages[0],
        *_groups(draft, members),
        *packages[1],
        *files,
        *_units(draft, rules_applied=any(isinstance(step, ReloadUdev) for step in files)),
        *members,
        *([LinkLibrary(LIBRARY, dsp.link, draft.base)] if dsp and dsp.link is not None else ()),
    ]
    steps += _end(draft, steps)
    _warn_of_foreign(draft)
    return SystemPlan(tuple(steps), tuple(draft.findings))


def _groups(draft: _Draft, members: list[AddMember]) -> list[Action]:
    """Return the groups to create, before packages that would create them, so that undo is
    exact.
    """
    wanted = [*draft.spec.groups, *draft.spec.members]
    if draft.dsp is not None and draft.dsp.group:
        wanted.append(draft.dsp.group)
    wanted += [member.group for member in members]
    return [
        CreateGroup(name, draft.shadow_tools)
        for name in dict.fromkeys(wanted)
        if draft.state.groups.get(name, ()) is None
    ]


def _members(draft: _Draft) -> list[AddMember]:
    own = draft.facts.user.name
    steps: dict[AddMember, None] = {}

    def want(user: str | None, group: str) -> None:
        if user is None:
            return
        there = draft.state.groups.get(group) or ()
        mine = draft.facts.user.groups_db if user == own else ()
        if user not in there and group not in mine:
            steps[AddMember(user, group, draft.shadow_tools)] = None

    for group, users in draft.spec.members.items():
        for user in users:
            want(user or own, group)
    if draft.dsp is not None and draft.dsp.group:
        want(own, draft.dsp.group)
    return list(steps)


def _files(draft: _Draft, writes: list[WriteFile]) -> list[Action]:
    if draft.dsp is not None and draft.dsp.rule is not None:
        writes = [*filter(None, (*writes, _write(draft, draft.dsp.rule)))]
    steps: list[Action] = list(writes)
    paths = [step.file.path for step in writes]
    if any(path.startswith(LOADER_CONF) for path in paths):
        steps.append(RunLdconfig())
    if any(path.startswith(_UNITS) for path in paths) and "systemctl" in draft.state.tools:
        steps.append(ReloadUnits())
    names = tuple(draft.dsp.apply_to) if draft.dsp is not None else ()
    if any(path.startswith(UDEV_RULES) for path in paths):
        names = tuple(dict.fromkeys([*names, "fastrpc-*", "system"]))
    if names:
        before = draft.facts.nodes
        action = draft.dsp.action if draft.dsp is not None else ACTION
        setfacl = has_setfacl(draft.spec, draft.state, draft.dsp.packages if draft.dsp else ())
        heaps = [node.path for node in before if node.exists and node.path.startswith(HEAP)]
        heaps = [path for path in heaps if setfacl and path.rpartition("/")[2] in names]
        had = draft.state.acls
        new = tuple(path for path in heaps if path not in had)
        kept = tuple(path for path in heaps if path in had)
        steps.append(ReloadUdev(names, before, action, new, kept, draft.base))
    return steps


def _write(draft: _Draft, want: WantedFile) -> WriteFile | None:
    current = draft.state.files.get(want.path)
    if current is None:
        return None
    same = (
        current.kind == "file"
        and current.content == want.content
        and current.mode.rjust(4, "0") == want.mode
        and (current.owner, current.group) == (want.owner, want.group)
    )
    if same:
        return None
    if current.kind in {"folder", "other"} or (current.kind == "file" and current.content is None):
        why = (
            "cannot be read by the deploy user"
            if current.kind == "file"
            else _NO_FILE[current.kind]
        )
        draft.findings.append(
            Finding(
                rule="system-file",
                severity="refuse",
                message=f"{want.path} {why}, so fleet cannot save it to restore it later",
                have=current.kind,
                need="a readable file, a link, or nothing",
                cure="move the present file or folder away; to see it, run on the device: ls "
                f"-ld {want.path}",
            )
        )
        return None
    return WriteFile(want, draft.base, current)


def _units(draft: _Draft, *, rules_applied: bool) -> list[Action]:
    """Return steps for units that differ from the desired state, or will after rules start them.

    With `rules_applied`, a unit that only rules can start counts as running if it should not run.
    """
    steps: list[Action] = []
    for want in draft.spec.units:
        current = draft.state.units.get(want.name)
        if current is None:
            draft.findings.append(_no_systemd(want.name))
            continue
        fixed = current.enabled in FIXED_UNITS
        if fixed and want.enabled:
            draft.findings.append(_not_enabled(want.name, current.enabled))
        enabled = want.enabled if want.enabled != (current.enabled == "enabled") else None
        enabled = None if fixed else enabled
        active = current.active == "active" or (rules_applied and fixed and want.running is False)
        running = want.running if want.running != active else None
        if enabled is not None or running is not None:
            steps.append(SetUnit(want.name, enabled, running, current))
    return steps


def _not_enabled(name: str, state: str) -> Finding:
    return Finding(
        rule="system-unit",
        severity="warn",
        message=f"systemd cannot enable the unit {name}, because it is {state}: udev rules or "
        "another unit start it",
        have=state,
        need="a unit with [Install]",
        cure="remove `enabled` from `system.units`; `running: true` starts the unit",
        source="man systemctl, is-enabled",
    )


def _no_systemd(name: str) -> Finding:
    return Finding(
        rule="system-unit",
        severity="refuse",
        message=f"fleet cannot start or enable the unit {name}, because the device has no "
        "systemctl",
        have="no systemctl",
        need="systemd",
        cure="remove the unit from `system.units`",
    )


def _end(draft: _Draft, steps: list[Action]) -> list[Action]:
    """Return a reboot if it is requested, else a new login if groups are new."""
    changed = any(step.needs_root for step in steps)
    waits = draft.dsp is not None and draft.dsp.waits
    if draft.spec.reboot and (changed or waits or draft.state.reboot_required):
        why = "the device requires it" if draft.state.reboot_required else "the playbook wants it"
        why = "the udev rules need a reboot to take effect" if waits else why
        return [Reboot(why, "systemctl" in draft.state.tools)]
    live, user = set(draft.facts.user.groups_live), draft.facts.user
    new = [step.group for step in steps if isinstance(step, AddMember) and step.user == user.name]
    waiting = [name for name in user.groups_db if name not in live and _matters(draft, name)]
    groups = tuple(dict.fromkeys([*new, *waiting]))
    return [Reconnect(groups)] if groups else []


def _matters(draft: _Draft, group: str) -> bool:
    return group in draft.spec.members or (draft.dsp is not None and group == draft.dsp.group)


def _warn_of_foreign(draft: _Draft) -> None:
    """Warn about QNN of the distribution: it is reported, shadowed or removed."""
    there = [name for name in qnn_packages() if draft.state.installed(name)]
    if draft.spec.distribution_qnn == REMOVE:
        there = []
    libraries = (*draft.facts.qnn_libraries, *draft.state.skels, *draft.state.on_path)
    foreign = [*there, *dict.fromkeys(libraries)]
    if not foreign:
        return
    beside = f", beside {', '.join(draft.state.trees)}" if draft.state.trees else ""
    shown = ", ".join(foreign[:6]) + (f" and {len(foreign) - 6} more" if len(foreign) > 6 else "")
    draft.findings.append(
        Finding(
            rule="mixed-qnn",
            severity="warn",
            message=f"the device also has QNN libraries from another source{beside}; "
            "fleet hides them from its releases",
            have=shown,
            need="one QNN on the search paths",
            cure=(
                "write `distribution_qnn: remove` under `system:` in the playbook (fleet then "
                "deletes these libraries)"
            )
            if there
            else (
                "remove these libraries by hand, because programs that fleet does not start "
                "may load files of both"
            ),
            source="docs/sources/deployment.md 6; the cause stub-skel-version-mismatch",
        )
    )
