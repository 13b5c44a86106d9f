"""Actions on groups, memberships and units, and on the login and the board itself."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.model.command import Command
from fleet.model.plan import Action
from fleet.model.system import UnitSeen
from fleet.ops.system.step import Refresh, SystemStep, argv


@dataclass(frozen=True)
class CreateGroup(SystemStep):
    """An action that creates a system group. `shadow` False: only busybox's programs exist."""

    name: str
    shadow: bool = True

    def describe(self) -> str:
        """Return `create system group fastrpc`."""
        return f"create system group {self.name}"

    def commands(self) -> tuple[Command, ...]:
        """Return groupadd, or busybox's addgroup."""
        if self.shadow:
            return (argv("groupadd", "--system", "--", self.name),)
        return (argv("addgroup", "-S", "--", self.name),)

    def undo(self) -> tuple[Command, ...]:
        """Return the deletion of the group."""
        return (argv("groupdel" if self.shadow else "delgroup", "--", self.name),)


@dataclass(frozen=True)
class AddMember(SystemStep):
    """An action that adds a user to a group, effective at the next login."""

    user: str
    group: str
    shadow: bool = True

    def describe(self) -> str:
        """Return `add ubuntu to group fastrpc`."""
        return f"add {self.user} to group {self.group}"

    def commands(self) -> tuple[Command, ...]:
        """Return usermod -aG, or busybox's addgroup."""
        if self.shadow:
            return (argv("usermod", "-a", "-G", self.group, "--", self.user),)
        return (argv("addgroup", "--", self.user, self.group),)

    def undo(self) -> tuple[Command, ...]:
        """Return the removal of the user from the group."""
        if self.shadow:
            return (argv("gpasswd", "-d", self.user, self.group),)
        return (argv("delgroup", "--", self.user, self.group),)


@dataclass(frozen=True)
class SetUnit(SystemStep):
    """An action on a systemd unit: enabled or not, running or not; None leaves it unchanged.

    `before` is its current state.
    """

    name: str
    enabled: bool | None
    running: bool | None
    before: UnitSeen

    def describe(self) -> str:
        """Return `enable and start cdsprpcd.service`."""
        words = _words(self.enabled, self.running)
        return f"{' and '.join(words)} {self.name}"

    def commands(self) -> tuple[Command, ...]:
        """Return one systemctl call for each word."""
        return tuple(
            argv("systemctl", word, "--", self.name) for word in _words(self.enabled, self.running)
        )

    def undo(self) -> tuple[Command, ...]:
        """Return commands that restore the previous state."""
        enabled = None if self.enabled is None else self.before.enabled == "enabled"
        running = None if self.running is None else self.before.active == "active"
        return tuple(argv("systemctl", word, "--", self.name) for word in _words(enabled, running))


def _words(enabled: bool | None, running: bool | None) -> list[str]:
    words = []
    if enabled is not None:
        words.append("enable" if enabled else "disable")
    if running is not None:
        words.append("start" if running else "stop")
    return words


@dataclass(frozen=True)
class ReloadUnits(Refresh):
    """An action that makes systemd read changed unit files."""

    def describe(self) -> str:
        """Return `reload systemd (changed units)`."""
        return "reload systemd (changed units)"

    def commands(self) -> tuple[Command, ...]:
        """Return systemctl daemon-reload."""
        return (argv("systemctl", "daemon-reload"),)


@dataclass(frozen=True)
class Reconnect(Action):
    """A new login, so that new groups take effect. Open shells keep their old groups."""

    groups: tuple[str, ...]
    no_undo = "there is nothing to undo: the login ends by itself"

    def describe(self) -> str:
        """Return `log in again for fastrpc (...)`."""
        return (
            f"log in again for {', '.join(self.groups)} "
            "(shells that are open on the device keep their old groups)"
        )


@dataclass(frozen=True)
class Reboot(SystemStep):
    """An action that reboots the board, only with permission (`--allow-reboot`)."""

    why: str
    systemd: bool = True
    no_undo = "a reboot cannot be undone"

    def describe(self) -> str:
        """Return `reboot: <why> (needs --allow-reboot)`."""
        return f"reboot: {self.why} (needs --allow-reboot)"

    def commands(self) -> tuple[Command, ...]:
        """Return the command for a clean reboot."""
        return (argv("systemctl", "reboot") if self.systemd else argv("reboot"),)
