"""The programs that an inventory can run on this workstation, the secrets it reads, and their
targets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fleet.config.inventory import ssh_configs
from fleet.model.inventory import Host
from fleet.model.secret import SecretRef

_SECRETS = {
    "password": "login password",
    "become_password": "sudo password",
    "key_passphrase": "passphrase of the key",
}
_READS = {"env": "read variable", "file": "read file", "cmd": "run"}
_STAYS = {"key_passphrase"}  # opens a key on this workstation
# The lines of an ssh config that start a program; fleet ignores others (transport.connection).
_STARTS = re.compile(r"(?i)^\s*(match\b.*?\bexec\b|proxycommand\b)[\s=]*(.*?)\s*$")


@dataclass(frozen=True)
class Power:
    """An action that fleet takes on this workstation because an inventory requests it.

    `sent_to` has the addresses that receive the first line of the result; it is empty if the result
    stays here.
    """

    does: str
    what: str
    purpose: str
    hosts: tuple[str, ...] = ()
    sent_to: tuple[str, ...] = ()


def powers(hosts: Iterable[Host]) -> list[Power]:
    """Return the programs and files that the hosts of an inventory can use, without using them."""
    hosts = list(hosts)
    users: dict[tuple[str, str, str], list[Host]] = {}
    for host in hosts:
        for key in _SECRETS:
            secret: SecretRef | None = getattr(host, key)
            if secret is not None and secret.literal is None:
                kind, _, rest = secret.reference.partition(":")
                if kind in _READS:
                    what = str(secret.base / Path(rest).expanduser()) if kind == "file" else rest
                    users.setdefault((kind, what, key), []).append(host)
    secrets = [
        Power(
            _READS[kind],
            what,
            _SECRETS[key],
            tuple(host.name for host in of),
            () if key in _STAYS else tuple(dict.fromkeys(map(_address, of))),
        )
        for (kind, what, key), of in users.items()
    ]
    configs = ssh_configs(hosts).items()
    return [*secrets, *(power for path, names in configs for power in _of_config(path, names))]


def _address(host: Host) -> str:
    where = host.address or host.name
    return where if host.port is None else f"{where}:{host.port}"


def _of_config(path: Path, names: tuple[str, ...]) -> Iterator[Power]:
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return  # the connection reports this error
    for number, line in enumerate(lines, 1):
        starts = _STARTS.match(line)
        if starts and starts[2].strip('"').lower() != "none":
            word = "Match exec" if starts[1].lower().startswith("match") else "ProxyCommand"
            yield Power("run", starts[2].strip('"'), f"{word} in {path}:{number}", names)
