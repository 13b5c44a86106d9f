"""Bare lab boards made ready for FastRPC: fleet beside pyinfra and Ansible.

The same wishes for each tool (package lists, three packages, group, membership, device rules
applied), the same boards, real sshd, sudo and apt; each round resets the boards, then every
tool works in turn: first on bare boards, then again where nothing is left to do. Ratios to
fleet of the same round. `udevadm` is the lab's stand-in for all of them.

Ansible's apt module needs python3-apt on the board, which bare images lack: its tasks are
`command` with guards, as playbooks for such images are written.

    python benchmarks/provision.py --boards 4 --rounds 3 --peers VENV_WITH_ANSIBLE_AND_PYINFRA
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from fleet.lab import Lab

ROOT = Path(__file__).parents[1]
PLAYBOOK = f"""name: bench
bundle: {ROOT / "assets" / "tiny-genie"}
fastrpc: auto
system: {{packages: [libatomic1]}}
"""
ANSIBLE = """- hosts: all
  become: true
  gather_facts: false
  tasks:
    - {name: lists, ansible.builtin.command: {cmd: apt-get -q update, creates: /usr/share/doc/acl}}
    - name: packages
      ansible.builtin.command:
        cmd: apt-get -y -q install --no-install-recommends qcom-fastrpc1 acl libatomic1
        creates: /usr/bin/setfacl
    - {name: group, ansible.builtin.group: {name: fastrpc, system: true}}
    - name: member
      ansible.builtin.user: {name: ubuntu, groups: fastrpc, append: true}
      register: user
    - name: rules
      ansible.builtin.shell: udevadm control --reload && udevadm trigger --action=change
      when: user.changed
    - {name: node, ansible.builtin.stat: {path: /dev/fastrpc-cdsp}}
"""
PYINFRA = """from pyinfra.operations import apt, server
packages = ["qcom-fastrpc1", "acl", "libatomic1"]
apt.packages(packages=packages, update=True, cache_time=3600, _sudo=True)
server.group(group="fastrpc", system=True, _sudo=True)
user = server.user(user="ubuntu", groups=["fastrpc"], append=True, _sudo=True)
server.shell(commands=["udevadm control --reload", "udevadm trigger --action=change"], _sudo=True,
             _if=user.did_change)
"""


class Bench:
    """The boards, and a folder with the files of each tool."""

    def __init__(self, lab: Lab, folder: Path, peers: Path | None) -> None:
        self.lab, self.folder, self.peers = lab, folder, peers
        config = lab.folder.root / "ssh_config"
        hosts = "".join(f"    {one.name}:\n" for one in lab.boards)
        (folder / "inventory.yaml").write_text(
            f"all:\n  vars: {{ssh_config: {config}, known_hosts: {lab.folder.known_hosts}}}\n"
            f"  hosts:\n{hosts}"
        )
        (folder / "playbook.yaml").write_text(PLAYBOOK)
        (folder / "ansible.yaml").write_text(ANSIBLE)
        (folder / "ansible.ini").write_text("".join(f"{one.name}\n" for one in lab.boards))
        (folder / "ansible.cfg").write_text(
            "[defaults]\ninterpreter_python=/usr/bin/python3\nforks=16\n[ssh_connection]\n"
            f"pipelining=True\nssh_args=-F {config} -o ControlMaster=auto -o ControlPersist=60s\n"
        )
        (folder / "deploy.py").write_text(PYINFRA)
        names = ", ".join(
            f"('127.0.0.1:{one.port}', dict(ssh_hostname='127.0.0.1', ssh_port={one.port}, "
            f"ssh_user='ubuntu', ssh_key='{lab.folder.identity_file}', "
            "ssh_strict_host_key_checking='no'))"
            for one in lab.boards
        )
        (folder / "hosts.py").write_text(f"boards = [{names}]\n")

    def run(self, *argv: str, **env: str) -> None:
        done = subprocess.run(
            argv,
            cwd=self.folder,
            env={**os.environ, "FLEET_HOME": str(self.folder / "home"), **env},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(argv)}: {done.stdout[-800:]}{done.stderr[-800:]}")

    def fleet(self) -> None:
        self.run(
            *(sys.executable, "-m", "fleet", "deploy", "playbook.yaml", "-i", "inventory.yaml"),
            *("--only", "system"),
        )

    def pyinfra(self) -> None:
        self.run(f"{self.peers}/bin/pyinfra", "-y", "hosts.py", "deploy.py")

    def ansible(self) -> None:
        self.run(
            *(f"{self.peers}/bin/ansible-playbook", "-i", "ansible.ini", "ansible.yaml"),
            ANSIBLE_CONFIG="ansible.cfg",
        )

    def reset(self) -> None:
        for one in self.lab.boards:
            self.lab.reset(one.name)

    def ready(self) -> None:
        """Every board is as wanted, whoever did it."""
        for one in self.lab.boards:
            said = self.lab.exec(one.name, ["sh", "-c", "id ubuntu; stat -c %G /dev/fastrpc-cdsp"])
            assert "(fastrpc)" in said.stdout, said.stdout
            assert said.stdout.split()[-1] == "fastrpc", said.stdout


def timed(work: Callable[[], None]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--boards", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", type=Path, help="a venv with ansible-core and pyinfra")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        profile, count = "bare-evk-nopasswd", options.boards
        with Lab.up(folder / "lab", count=count, profile=profile, base_port=0) as lab:
            bench = Bench(lab, folder, options.peers)
            tools = {"fleet": bench.fleet}
            if options.peers:
                tools |= {"pyinfra": bench.pyinfra, "ansible": bench.ansible}
            seconds: dict[tuple[str, str], list[float]] = {}
            for number in range(options.rounds):
                order = list(tools) if number % 2 == 0 else list(tools)[::-1]
                for tool in order:
                    bench.reset()
                    seconds.setdefault((tool, "bare"), []).append(timed(tools[tool]))
                    bench.ready()
                    seconds.setdefault((tool, "again"), []).append(timed(tools[tool]))
            show(seconds, options.boards)


def show(seconds: dict[tuple[str, str], list[float]], boards: int) -> None:
    print(f"{boards} boards, loopback, emulated; median seconds, and ratio to fleet by round")
    for (tool, kind), values in seconds.items():
        ratios = [v / f for v, f in zip(values, seconds["fleet", kind], strict=True)]
        print(
            f"{tool:8} {kind:6} {statistics.median(values):6.2f} s   "
            f"x {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        )


if __name__ == "__main__":
    main()
