"""The system of a device: its state, the plan for it, and the execution of the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fleet.device.shell import device_script, framed
from fleet.engine.session import Session
from fleet.engine.system.become import NONE, PASSWORD, ROOT, Become
from fleet.model.command import Command
from fleet.model.errors import DeviceError
from fleet.model.facts import Facts
from fleet.model.finding import Finding
from fleet.model.plan import Action, DevicePlan
from fleet.model.system import SystemSpec, SystemState
from fleet.ops.system.provision import SystemPlan, provision
from fleet.ops.system.state import parse_system, questions, system_input
from fleet.ops.system.step import SystemStep
from fleet.ops.system.steps_files import LinkLibrary, ReloadUdev
from fleet.ops.system.steps_packages import InstallPackages, RefreshPackages, bare_name, undo_of
from fleet.ops.system.steps_users import AddMember, Reboot, Reconnect

Undo = tuple[Command, ...]
_RIGHTS = (AddMember, ReloadUdev, Reconnect, Reboot)
SHIM_SECONDS = 30.0
# A playbook serves boards and phones: its settings for boards are no error here.
_ANDROID = (
    "Android: FastRPC and its rights come with the firmware; `fastrpc:` and `system:` of the "
    "playbook are for Linux"
)
_WINDOWS = (
    "Windows: FastRPC comes with the NPU driver; `fastrpc:` and `system:` of the playbook are "
    "for Linux, so fleet does not change the system here"
)


@dataclass(frozen=True)
class SystemSnapshot:
    """A plan for the system, and the way in which this login becomes root for it."""

    plan: SystemPlan
    become: Become


_NOTHING = SystemSnapshot(SystemPlan(), Become(NONE))


def system_snapshot(session: Session, spec: SystemSpec, facts: Facts) -> SystemSnapshot:
    """Ask the device and plan, in one round trip; a second one if root is needed."""
    if spec.empty:
        return _NOTHING
    if facts.android is not None or not facts.posix:
        note = _ANDROID if facts.posix else _WINDOWS
        return SystemSnapshot(SystemPlan(notes=(note,)), Become(NONE))
    state = ask_system(session, spec)
    plan = provision(spec, facts, state)
    if not plan.needs_root:
        return SystemSnapshot(plan, Become(ROOT if facts.user.uid == 0 else NONE))
    return _with_rights(session, plan)


def ask_system(session: Session, spec: SystemSpec) -> SystemState:
    """Return the state of everything in the spec, in one round trip that only reads."""
    asked = questions(spec)
    result = session.ask(
        device_script("system"),
        "system",
        stdin=system_input(asked.packages, asked.groups, asked.files, asked.units),
    )
    return parse_system(result.text, session.host.name)


def _with_rights(session: Session, plan: SystemPlan) -> SystemSnapshot:
    """Return the plan with the way to root and the package manager's announced effects."""
    install = next((s for s in plan.steps if isinstance(s, InstallPackages)), None)
    known = not any(isinstance(step, RefreshPackages) for step in plan.steps)
    names = install.names if install is not None and known else ()
    become, effects = ask_rights(session, tuple(n for n in names if not n.startswith("/")))
    return SystemSnapshot(system_effects(plan, effects), become)


def system_effects(plan: SystemPlan, effects: Mapping[str, list[str]]) -> SystemPlan:
    """Return the plan with the announced side effects of the package manager."""

    def lines(word: str) -> list[str]:
        return effects.get(word, [])

    brings = tuple(lines("brings"))
    size = "; ".join(line[:1].lower() + line[1:] for line in lines("size"))
    replaces = tuple(lines("replaces"))
    steps = tuple(
        replace(step, brings=brings, replaces=replaces, size=size)
        if brings and isinstance(step, InstallPackages)
        else step
        for step in plan.steps
    )
    more = (*_objections(lines("refuses"), lines("removes")), *_firmware(brings))
    return SystemPlan(steps, (*plan.findings, *more), plan.notes)


def ask_rights(
    session: Session, names: tuple[str, ...] = ()
) -> tuple[Become, dict[str, list[str]]]:
    """Return the way to root, and word → texts of the simulated installation of `names`."""
    result = session.ask(device_script("rights", "ask", *names), "rights")
    answer: dict[str, list[str]] = {"become": []}
    for word, *rest in framed(result.text, "fleet-rights 1", session.host.name):
        answer.setdefault(word, []).append(" ".join(rest))
    kind = answer["become"][0] if answer["become"] else NONE
    secret = session.host.become_password
    return Become(kind, secret.get() if secret is not None and kind == PASSWORD else None), answer


def _objections(refusals: list[str], removed: list[str]) -> list[Finding]:
    refusal = Finding(
        rule="system-packages",
        severity="refuse",
        message="the package manager of the device refuses the installation: "
        + "; ".join(refusals[:3]),
        have="an installation that fails",
        need="an installation that succeeds",
        cure="run on the device: sudo apt-get -f install; or use other versions or package sources",
    )
    removal = replace(
        refusal,
        message=f"the installation would remove {', '.join(removed)}",
        have=", ".join(removed),
        need="an installation that removes only packages that the playbook names",
        cure="remove these packages by hand if you do not need them, or set another packaging "
        "as `fastrpc:` in the playbook",
    )
    return [finding for finding, words in ((refusal, refusals), (removal, removed)) if words]


def _firmware(brings: tuple[str, ...]) -> tuple[Finding, ...]:
    """Return a warning about firmware packages, which would override the board vendor's
    firmware.
    """
    names = [name for name in brings if name.startswith(("linux-firmware", "firmware-"))]
    if not names:
        return ()
    finding = Finding(
        rule="firmware-comes",
        severity="warn",
        message=f"the installation brings firmware ({', '.join(names)}); after the next boot the "
        "board would load it instead of its own firmware, and other boards lost Wi-Fi or "
        "DSP shells this way",
        have=", ".join(names),
        need="the firmware of the board's vendor",
        cure="back up the firmware with `sudo cp -a /lib/firmware /lib/firmware.before` on the "
        "device, or set another packaging as `fastrpc:` in the playbook",
        source="notes of Tachyon and Radxa Q6A boards: linux-firmware-dragonwing of the PPA",
    )
    return (finding,)


def cured(findings: tuple[Finding, ...], plan: SystemPlan) -> tuple[Finding, ...]:
    """Turn refusals that the steps of the plan resolve into warnings.

    After the steps the device is probed again, and every refusal then counts.
    """
    if not plan.steps:
        return findings
    come = {
        bare_name(name)
        for step in plan.steps
        if isinstance(step, InstallPackages)
        for name in (*step.names, *step.brings)
    }
    cures = {
        "libatomic-missing": "libatomic1" in come,
        "libstdcpp-missing": "libstdc++6" in come,
        "python3-missing": "python3" in come,
        "fastrpc-node": any(isinstance(step, _RIGHTS) for step in plan.steps),
        "libcdsprpc-missing": any(isinstance(step, LinkLibrary) for step in plan.steps),
    }
    return tuple(
        replace(finding, severity="warn", cure="the steps of this plan fix it")
        if finding.refuses and cures.get(finding.rule)
        else finding
        for finding in findings
    )


def carry_out(session: Session, step: Action, become: Become) -> None:
    """Run one step on the system: write its files, then run its commands, each as root."""
    if isinstance(step, LinkLibrary):
        command = device_script("shim", step.base, step.name, step.target)
        session.ask(command, "link", seconds=SHIM_SECONDS, mutates=True)
        return
    if not isinstance(step, SystemStep):
        raise NotImplementedError(type(step).__name__)
    run_as_root(session, become, step.commands(), step.staged(), step.seconds)


def run_as_root(
    session: Session,
    become: Become,
    commands: tuple[Command, ...],
    staged: Mapping[str, bytes],
    seconds: float,
) -> None:
    """Run literal commands in order, after writing the files that they read."""
    become.prove(session)
    for path, content in staged.items():
        session.ask(device_script("put", path), "put", stdin=[content], mutates=True)
    for command in commands:
        become.run(session, command, "system", seconds)
    if staged:
        session.ask(Command(("rm", "-f", "--", *staged)), "tidy", mutates=True)


def accounts(session: Session) -> dict[str, dict[str, str]]:
    """Return groups, users and packages of the device: name → version, "" if it has none."""
    result = session.ask(device_script("accounts"), "accounts")
    names: dict[str, dict[str, str]] = {"group": {}, "user": {}, "package": {}}
    for kind, name, *version in framed(result.text, "fleet-accounts 1", session.host.name):
        names[kind][name] = " ".join(version)
    return names


def came(before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]) -> Undo:
    """Return the commands that undo everything new or changed in `after`."""

    def new(kind: str) -> tuple[str, ...]:
        return tuple(name for name in after[kind] if name not in before[kind])

    old, now = before["package"], after["package"]
    older = tuple(f"{name}={old[name]}" for name in now if old.get(name, now[name]) != now[name])
    # userdel removes a group of the same name together with its user.
    groups = tuple(name for name in new("group") if name not in new("user"))
    namesakes = tuple(name for name in new("user") if name in before["group"])
    return undo_of(new("package"), older, new("user"), groups, namesakes)


def still_lacking(plan: DevicePlan) -> None:
    """Raise DeviceError if system steps are left after all were done."""
    if plan.system_steps:
        host = plan.host.name
        raise DeviceError(
            "fleet did all steps, but the device still lacks: "
            + "; ".join(step.describe() for step in plan.system_steps[:4]),
            step="system",
            hint=f"fleet plan --limit {host} (shows the missing steps), fleet facts --limit "
            f"{host} (shows the state of the device)",
        )
