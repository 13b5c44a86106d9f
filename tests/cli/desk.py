"""Two boards (one sshd each) in an inventory, and the command line as people type it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from fleet.model.inventory import Host
from tests import warm

ROOT = Path(__file__).parents[2]


class Desk:
    """An inventory of boards, and the command line."""

    def __init__(self, folder: Path, hosts: list[Host]) -> None:
        self.folder = folder
        self.inventory = folder / "inventory.yaml"
        lines = ["all:", "  hosts:"]
        for number, host in enumerate(hosts, 1):
            lines += [
                f"    evk-{number}:", "      host: 127.0.0.1", f"      port: {host.port}",
                f"      user: {host.user}", f"      identity_file: {host.identity_files[0]}",
                f"      known_hosts: {host.known_hosts}", f"      base_dir: {folder}/base{number}",
            ]  # fmt: skip
        self.inventory.write_text("\n".join(lines) + "\n")

    def fleet(self, who: str, *args: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "FLEET_OWNER": who, "NO_COLOR": "1"}
        return warm.fleet(args[0], "-i", self.inventory, *args[1:], cwd=ROOT, env=env)

    def json(self, who: str, *args: str) -> list[dict[str, Any]]:
        done = self.fleet(who, args[0], "--json", *args[1:])
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found
