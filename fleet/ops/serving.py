"""A service on a device: its commands, its systemd unit, and its state."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fleet.device.shell import device_script, framed, odd_answer
from fleet.model.command import Command
from fleet.model.errors import InputError

USER, SYSTEM, NONE = "user", "system", "none"
TAG = "fleet-serve 1"
CANNOT_START = 10  # exit status of the server: it is not restarted
RESTART_SECONDS = 1
LOG_LINES = 10_000


@dataclass(frozen=True)
class ServiceSeen:
    """The state of a service on a device.

    `release` is the release that it was started with, `current` the deployed one. `units` maps user
    and system to systemd's properties of the unit. `restarts` counts since the last start by
    fleet's supervisor; `ended` is the last exit status.
    """

    user_systemd: bool = False
    units: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    linger: str | None = None
    current: str | None = None
    release: str | None = None
    keeper: int | None = None
    server: int | None = None
    failed: bool = False
    token: bool = False
    restarts: int | None = None
    ended: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kept_by(self) -> str | None:
        """The supervisor: user or system (systemd's), none (fleet's own); None if stopped."""
        for scope in (USER, SYSTEM):
            if self.units.get(scope, {}).get("ActiveState") in {
                "active",
                "activating",
                "reloading",
            }:
                return scope
        return NONE if self.keeper is not None else None

    @property
    def pid(self) -> int | None:
        """The process id of the server, None if it does not run."""
        scope = self.kept_by
        if scope in {USER, SYSTEM}:
            text = self.units[scope].get("MainPID", "0")
            return int(text) if text.isdigit() and text != "0" else None
        return self.server

    @property
    def older(self) -> bool:
        """True if it serves another release than the deployed one."""
        return bool(self.release and self.current) and self.release != self.current

    @property
    def port(self) -> int | None:
        """The port of the stored configuration, None if it has none."""
        port = self.config.get("port")
        return port if isinstance(port, int) else None


def service_dir(base: str, name: str) -> str:
    """Return `<base>/serve/<name>`."""
    return f"{base}/serve/{name}"


def unit_name(name: str) -> str:
    """Return `fleet-<name>.service`."""
    return f"fleet-{name}.service"


def state_command(base: str, name: str) -> Command:
    """Return the command that asks for the state. It only reads."""
    return device_script("serve_state", base, name, unit_name(name))


def parse_service(text: str, host: str) -> ServiceSeen:
    """Parse the answer of `state_command`. Raises DeviceError if it is truncated or invalid."""
    values: dict[str, Any] = {}
    units: dict[str, dict[str, str]] = {}
    for kind, *rest in framed(text, TAG, host):
        try:
            if kind == "unit":
                units.setdefault(rest[0], {})[rest[1]] = rest[2]
            elif kind == "alive":
                values[rest[0]] = int(rest[1])
            elif kind in {"restarts", "ended"}:
                values[kind] = int(rest[0])
            elif kind in {"failed", "token"}:
                values[kind] = True
            elif kind == "user":
                values["user_systemd"] = True
            elif kind in {"linger", "current", "release"}:
                values[kind] = rest[0]
            elif kind == "config":
                values["config"] = _config(" ".join(rest))
        except (IndexError, ValueError) as error:
            raise odd_answer(" ".join((kind, *rest)), host) from error
    return ServiceSeen(units=units, **values)


def _config(text: str) -> dict[str, Any]:
    config = json.loads(text)
    return config if isinstance(config, dict) else {}


def put_command(base: str, name: str, release: str, *, new_token: bool = False) -> Command:
    """Return the command that writes folder, token, configuration and link.

    Standard input is a line with a token, then the configuration. An existing token stays, unless
    `new_token`. With `release` "" only the token is written.
    """
    return device_script("serve_put", base, name, release, "new" if new_token else "")


def stop_command(base: str, name: str, seconds: float) -> Command:
    """Return the command that stops fleet's supervisor, and kills it after `seconds`."""
    return device_script("serve_stop", service_dir(base, name), str(math.ceil(seconds)))


def unit_command(do: str, name: str) -> Command:
    """Return the command to `start` or `stop` the user's unit. The input of start is its text."""
    return device_script("serve_unit", do, unit_name(name))


def unit_text(base: str, name: str, stop_seconds: float, user: str = "") -> str:
    """Return the text of a unit; `user` for a system unit, "" for the user's own systemd.

    Sources: systemd.service(5), systemd.exec(5), systemd.syntax(7) for the quoting.
    """
    folder = service_dir(base, name)
    launch = f"{folder}/release/run/serve_launch.sh"
    return f"""\
# Written by fleet: fleet serve start.
[Unit]
Description=fleet service {name}
StartLimitIntervalSec=0

[Service]
ExecStart=/bin/sh {_word(launch)} {_word(folder)}
Restart=always
RestartSec={RESTART_SECONDS}
RestartPreventExitStatus={CANNOT_START}
TimeoutStopSec={math.ceil(stop_seconds) + 10}
{f"User={user}" if user else ""}
UMask=0077
NoNewPrivileges=yes
StandardOutput=append:{_path(folder)}/log
StandardError=inherit

[Install]
WantedBy={"multi-user.target" if user else "default.target"}
"""


def _word(text: str) -> str:
    """Return one argument of ExecStart: quoted, without specifiers and variables."""
    if any(ord(char) < 32 for char in text):
        raise InputError(
            f"the path of the folder {text!r} contains a control character, which systemd does "
            "not allow",
            hint="set `base_dir:` in the inventory to another folder",
        )
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"'


def _path(text: str) -> str:
    """Return a path for `append:`, which ends with the line and expands specifiers."""
    _word(text)
    return text.replace("%", "%%")
