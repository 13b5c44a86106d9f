"""Plan, then apply: exactly the planned actions, from any state of the board.

Every round changes the board at random, plans, applies, and compares what ran as root (by
sudo's own log) with the plan; after it nothing is left to do.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from fleet.model.system import SystemSpec, WantedFile, WantedUnit

from .conftest import Bare
from .test_become import logged, with_log

Make = Callable[..., Bare]

CHANGES = [
    "groupdel fastrpc 2>/dev/null; true",
    "groupadd --system fastrpc 2>/dev/null; true",
    "gpasswd -d ubuntu fastrpc 2>/dev/null; true",
    "usermod -aG fastrpc ubuntu 2>/dev/null; true",
    "gpasswd -d ubuntu video >/dev/null 2>&1; true",
    "chmod 600 /dev/fastrpc-* /dev/dma_heap/system; chown root:root /dev/fastrpc-* /dev/dma_heap/*",
    "chmod 666 /dev/fastrpc-* /dev/dma_heap/system",
    "chown root:video /dev/fastrpc-cdsp; chmod 660 /dev/fastrpc-cdsp",
    "chown root:render /dev/dma_heap/system; chmod 640 /dev/dma_heap/system",
    "apt-get -y -q purge qcom-fastrpc1 >/dev/null; true",
    "apt-get -y -q install qcom-fastrpc1 >/dev/null; true",
    "apt-get -y -q purge libatomic1 >/dev/null; true",
    "apt-get -y -q install libqnn1 >/dev/null; true",
    "rm -rf /var/lib/apt/lists/*; true",
    "apt-get -q update >/dev/null; true",
    "rm -f /etc/udev/rules.d/*; true",
    'echo \'KERNEL=="fastrpc-*", MODE="0600", GROUP="root"\' > /etc/udev/rules.d/65-odd.rules',
    "echo other > /etc/npu.conf",
    "rm -f /etc/npu.conf; ln -s /etc/hostname /etc/npu.conf",
    "rm -f /etc/npu.conf",
    "chmod 600 /etc/npu.conf 2>/dev/null; chgrp ubuntu /etc/npu.conf 2>/dev/null; true",
    "rm -f /etc/ld.so.conf.d/npu.conf",
    "systemctl enable cdsprpcd 2>/dev/null; systemctl start cdsprpcd 2>/dev/null; true",
    "systemctl disable cdsprpcd 2>/dev/null; systemctl stop cdsprpcd 2>/dev/null; true",
    "rm -rf /home/ubuntu/fleet/shim; true",
    "ln -sf libcdsprpc.so.1 /usr/lib/x86_64-linux-gnu/libcdsprpc.so; true",
    "rm -f /usr/lib/x86_64-linux-gnu/libcdsprpc.so; true",
]
WISHES: list[dict[str, object]] = [
    {"fastrpc": "auto"},
    {"packages": ("libatomic1",)},
    {"packages": ("libatomic1", "acl")},
    {"groups": ("npu",)},
    {"members": {"video": ("",)}},
    {"members": {"npu": ("", "root")}},
    {"files": (WantedFile("/etc/npu.conf", b"one\n"),)},
    {"files": (WantedFile("/etc/npu.conf", b"two $(id)\n", "0755", "ubuntu", "video"),)},
    {"rules": {"70-npu.rules": 'KERNEL=="fastrpc-cdsp1", MODE="0640"\n'}},
    {"library_paths": {"npu.conf": ("/opt/npu/lib",)}},
    {"distribution_qnn": "remove"},
]


def rounds(board: Bare, count: int, seed: int, packages: str = "qcom-fastrpc1") -> None:
    chance = random.Random(seed)
    changes = [change.replace("qcom-fastrpc1", packages) for change in CHANGES]
    for number in range(count):
        script = chance.sample(changes, chance.randint(0, 6))
        board.root("; ".join(script) or "true")
        spec = SystemSpec()
        for wish in chance.sample(WISHES, chance.randint(1, 5)):
            spec = replace(spec, **wish)  # type: ignore[arg-type]
        if board.root(f"dpkg-query -W {packages} 2>/dev/null || true") and chance.random() < 0.5:
            unit = WantedUnit("cdsprpcd.service", chance.random() < 0.5, chance.random() < 0.5)
            spec = replace(spec, units=(unit,))
        board.root("rm -f /var/log/sudo.log")
        done = board.provision(spec)
        planned = [
            " ".join(command.argv)
            for step in done.plan.system_steps
            if step.needs_root
            for command in step.commands()
        ]
        about = f"seed {seed} round {number}: {script} {spec}"
        ran = [one.partition(" ") for one in logged(board)]
        names = [f"{path.rpartition('/')[2]}{blank}{rest}" for path, blank, rest in ran]
        assert names == planned, about
        refused = [one for one in done.plan.findings if one.refuses]
        assert refused or done.left.system_steps == (), about


@pytest.mark.parametrize(
    ("profile", "packages"),
    [("bare-evk-nopasswd", "qcom-fastrpc1"), ("bare-rb3", "libfastrpc1 fastrpc-support")],
)
def test_plan_and_apply_agree_from_random_states(bare: Make, profile: str, packages: str) -> None:
    """With the rules of the PPA's time and those of Debian, which a contract holds to the real."""
    rounds(with_log(bare(profile)), 10, seed=1, packages=packages)


@pytest.mark.slow
def test_plan_and_apply_agree_from_500_random_states(bare: Make) -> None:
    rounds(with_log(bare("bare-evk-nopasswd")), 500, seed=2)
