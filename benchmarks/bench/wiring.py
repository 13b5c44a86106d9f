"""The files with which each tool finds the boards: ssh, fleet, Ansible, pyinfra."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

GCM = "aes128-gcm@openssh.com"


@dataclass(frozen=True)
class Endpoint:
    """One board: where its sshd listens, and the folder on it that is ours."""

    name: str
    port: int
    user: str
    host_key: str
    home: str

    @property
    def place(self) -> str:
        """Emptied before each push."""
        return f"{self.home}/bench"

    @property
    def base(self) -> str:
        """The base folder of fleet."""
        return f"{self.place}/fleet"

    @property
    def inbox(self) -> str:
        """Where peers put what they bring."""
        return f"{self.place}/in"

    def behind(self, port: int) -> Endpoint:
        """The same board through another port of this host."""
        return replace(self, port=port)


class Wiring:
    """Writes the files for some endpoints into a folder of its own."""

    def __init__(self, folder: Path, endpoints: Sequence[Endpoint], identity: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.endpoints, self.identity = folder, tuple(endpoints), identity
        self.known_hosts = folder / "known_hosts"
        self.ssh_config = folder / "ssh_config"
        self.inventory = folder / "fleet.yaml"
        self.ansible_hosts = folder / "ansible.ini"
        self.ansible_config = folder / "ansible.cfg"
        self.pyinfra_hosts = folder / "hosts.py"
        self._ssh()
        self._fleet()
        self._ansible()
        self._pyinfra()

    @property
    def ssh(self) -> tuple[str, ...]:
        """`ssh` with the one cipher for all."""
        return ("ssh", "-F", str(self.ssh_config))

    def _ssh(self) -> None:
        pins, lines = [], []
        for one in self.endpoints:
            pins.append(f"[127.0.0.1]:{one.port} {' '.join(one.host_key.split()[:2])}\n")
            lines.append(f"Host {one.name}\n  HostName 127.0.0.1\n  Port {one.port}\n")
            lines.append(f"  User {one.user}\n")
        lines.append(f'Host *\n  IdentityFile "{self.identity}"\n  IdentitiesOnly yes\n')
        lines.append(f'  UserKnownHostsFile "{self.known_hosts}"\n  StrictHostKeyChecking yes\n')
        lines.append(f"  BatchMode yes\n  LogLevel ERROR\n  Ciphers {GCM}\n  Compression no\n")
        self.known_hosts.write_text("".join(pins), "utf-8")
        self.ssh_config.write_text("".join(lines), "utf-8")

    def _fleet(self) -> None:
        """No cipher here: fleet chooses by itself."""
        common = {"identity_file": str(self.identity), "known_hosts": str(self.known_hosts)}
        hosts = {
            one.name: {
                "host": "127.0.0.1",
                "port": one.port,
                "user": one.user,
                "base_dir": one.base,
            }
            for one in self.endpoints
        }
        data = {"all": {"vars": common, "hosts": hosts}}
        self.inventory.write_text(json.dumps(data, indent=1) + "\n", "utf-8")  # JSON is YAML

    def _ansible(self) -> None:
        self.ansible_hosts.write_text("".join(f"{o.name}\n" for o in self.endpoints), "utf-8")
        self.ansible_config.write_text(
            "[defaults]\ninterpreter_python=/usr/bin/python3\n"
            f"forks={min(50, len(self.endpoints))}\nretry_files_enabled=False\n"
            f"home={self.folder}/ansible\nlocal_tmp={self.folder}/ansible/tmp\n"
            "[ssh_connection]\npipelining=True\n"
            f"ssh_args=-F {self.ssh_config} -o ControlMaster=auto -o ControlPersist=60s\n",
            "utf-8",
        )

    def _pyinfra(self) -> None:
        hosts = [
            (
                one.name,
                {
                    "ssh_hostname": "127.0.0.1",
                    "ssh_port": one.port,
                    "ssh_user": one.user,
                    "ssh_key": str(self.identity),
                    "ssh_allow_agent": False,
                    "ssh_look_for_keys": False,
                    "ssh_known_hosts_file": str(self.known_hosts),
                    "ssh_config_file": str(self.ssh_config),
                    "ssh_strict_host_key_checking": "yes",
                },
            )
            for one in self.endpoints
        ]
        self.pyinfra_hosts.write_text(
            # a list without an underscore would be a group of hosts to pyinfra
            "import paramiko\n"
            "_known = paramiko.Transport._preferred_ciphers\n"
            f"_others = [one for one in _known if one != {GCM!r}]\n"
            f"_only = {{'ciphers': _others}} if {GCM!r} in _known else {{}}\n"
            "_more = {'ssh_paramiko_connect_kwargs': {'disabled_algorithms': _only}}\n"
            f"boards = [(name, {{**data, **_more}}) for name, data in {hosts!r}]\n",
            "utf-8",
        )
