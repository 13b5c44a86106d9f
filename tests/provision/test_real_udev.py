"""Debian's own udevadm on rules: what the step's event makes of them, and what we promise.

It runs in a mount namespace whose /sys is a tree of FastRPC's devices. The step's own `trigger`
writes the event into it; `udevadm test` says what the rules give the node on that event.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence

import pytest

from fleet.lab import kinds
from fleet.model.system import RuleSeen
from fleet.ops.system.access import ruled
from fleet.ops.system.fastrpc import own_rule
from fleet.ops.system.steps_files import ReloadUdev
from fleet.triage.knowledge import knowledge
from tests import needs

NODES = {"cdsp": "/dev/fastrpc-cdsp", "secure": "/dev/fastrpc-cdsp-secure"}
HEAP = "/dev/dma_heap/system"
UDEVADM = shutil.which("udevadm", path="/usr/bin:/bin:/usr/sbin:/sbin")
STEP = ReloadUdev(("fastrpc-*", "system")).commands()[2].argv
TREE = r"""
set -eu
for folder in /dev /sys /run; do mount -t tmpfs none $folder; done
device() {
  mkdir -p "/sys/devices/virtual/$1/$2" "/sys/class/$1"
  ln -s "../../../../class/$1" "/sys/devices/virtual/$1/$2/subsystem"
  ln -s "../../devices/virtual/$1/$2" "/sys/class/$1/$2"
}
uevent() { printf 'MAJOR=10\nMINOR=61\nDEVNAME=%s\n' "$2" > "/sys/class/$1/uevent"; }
mkdir -p /run/udev/rules.d
cat > /run/udev/rules.d/60-fastrpc.rules
for name in passwd group; do
  cp /etc/$name /run/$name
  printf 'fastrpc:x:995:995::/:/bin/false\n' >> /run/$name
  mount --bind /run/$name /etc/$name
done
ALL='misc/fastrpc-cdsp:fastrpc-cdsp misc/fastrpc-cdsp-secure:fastrpc-cdsp-secure
     misc/rtc:rtc dma_heap/system:dma_heap/system'
for pair in $ALL; do
  device "${pair%%/*}" "$(basename "${pair%%:*}")"
  uevent "${pair%%:*}" "${pair#*:}"
done
"$@" >&2
for pair in $ALL; do
  event=$(head -n 1 "/sys/class/${pair%%:*}/uevent")
  uevent "${pair%%:*}" "${pair#*:}"
  echo "@@ /dev/${pair#*:} $event"
  case $event in MAJOR*) continue ;; esac
  udevadm test --action="$event" "/sys/class/${pair%%:*}" 2>&1
done
"""
_GIVEN = re.compile(r": \S+60-fastrpc\.rules:\d+ (GROUP|MODE) (\S+)$", re.MULTILINE)
# udevadm of systemd 252 (Debian 12), and of 257 (Debian 13).
_RUN = re.compile(r"^(?:run: '|\s*RUN\{program\} : )(.*?)'?$", re.MULTILINE)


@pytest.fixture(autouse=True)
def _real() -> None:
    needs.tool("udevadm", "udev")
    namespace = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/sys"]
    said = subprocess.run(namespace, capture_output=True, text=True, check=False)
    if said.returncode:
        pytest.skip(f"no mount namespace here: {said.stderr.strip()}")


Applied = dict[str, tuple[str, dict[str, str], list[str]]]


def applied(rules: str, trigger: Sequence[str] = STEP) -> Applied:
    """By node: the event that the step made, what the rules gave on it, what they would run."""
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", TREE, "sh", *trigger],
        input=rules,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
            "SYSTEMD_DEVICE_VERIFY_SYSFS": "0",
            "SYSTEMD_LOG_LEVEL": "debug",
        },
    )
    assert done.returncode == 0, done.stderr
    found = {}
    for part in done.stdout.split("@@ ")[1:]:
        head, _, text = part.partition("\n")
        node, event = head.split()
        found[node] = (event, dict(_GIVEN.findall(text)), _RUN.findall(text))
    return found


def rules_of(repository: str) -> str:
    """The device rules that the lab's packages of a repository bring."""
    files = [deb.files for deb in kinds.REPOSITORIES[repository]()]
    texts = [text for one in files for path, text in one.items() if path.endswith(".rules")]
    return b"".join(text for text in texts if isinstance(text, bytes)).decode()


def test_the_event_reaches_the_nodes_and_nothing_else() -> None:
    found = applied("")
    assert {node: event for node, (event, _, _) in found.items()} == {
        **dict.fromkeys((*NODES.values(), HEAP), "add"),
        "/dev/rtc": "MAJOR=10",
    }


@pytest.mark.parametrize(
    ("repository", "modes"),
    [("ubuntu-qcom-iot/qcom-ppa", ("0664", "0640")), ("debian", ("0640", None))],
)
def test_rules_of_the_packages_apply_by_the_event_that_the_step_makes(
    repository: str, modes: tuple[str, str | None]
) -> None:
    found = applied(rules_of(repository))
    for node, mode in zip(NODES.values(), modes, strict=True):
        given = {"GROUP": "995", "MODE": mode} if mode else {}
        assert found[node][1] == given, found[node]


@pytest.mark.parametrize(
    ("repository", "mode"), [("ubuntu-qcom-iot/qcom-ppa", "0660"), ("debian", None)]
)
def test_the_heap_gets_its_acl(repository: str, mode: str | None) -> None:
    event, given, runs = applied(rules_of(repository))[HEAP]
    assert (event, given.get("MODE")) == ("add", mode)
    assert runs == [f"/bin/setfacl -m g:fastrpc:rw {HEAP}"]


@pytest.mark.parametrize(
    "action",
    [
        "",
        'ACTION=="add", ',
        'ACTION=="change", ',
        'ACTION=="remove", ',
        'ACTION!="remove", ',
        'ACTION!="add", ',
        'ACTION=="add|change", ',
        'ACTION=="a*", ',
        'ACTION=="add" ',
    ],
)
def test_what_we_promise_of_a_rule_is_what_udev_gives(action: str) -> None:
    rules = (
        f'{action}SUBSYSTEM=="misc", KERNEL=="fastrpc-*", GROUP="fastrpc", MODE="0640"\n'
        f'{action}SUBSYSTEM=="dma_heap", KERNEL=="system", GROUP="fastrpc", MODE="0660"\n'
    )
    found = applied(rules)
    promised = {
        node: ruled(node, [RuleSeen("/usr/lib/udev/rules.d/60-x.rules", tuple(rules.splitlines()))])
        for node in (NODES["cdsp"], HEAP)
    }
    for node, promise in promised.items():
        _, given, _ = found[node]
        real = ("fastrpc", given["MODE"]) if given else None
        assert promise == real, f"{node}: promised {promise}, udev gives {given}"


@pytest.mark.parametrize(
    ("cause", "reached"),
    [("fastrpc-node-permission", [*NODES.values()]), ("dma-heap-permission", [HEAP])],
)
def test_the_command_of_a_cause_applies_the_rules(cause: str, reached: list[str]) -> None:
    commands = [fix.command for fix in knowledge().causes[cause].fix]
    (trigger,) = [
        part.strip().removeprefix("sudo ")
        for command in commands
        for part in command.split("&&")
        if "udevadm trigger" in part
    ]
    found = applied(rules_of("ubuntu-qcom-iot/qcom-ppa"), shlex.split(trigger))
    assert [node for node, (event, _, _) in found.items() if event == "add"] == reached, found
    assert all(found[node][1] for node in reached), found


def test_our_own_rule_leaves_secure_nodes_and_gives_no_right_to_write() -> None:
    text = own_rule("fastrpc", frozenset({"fastrpc", "dma_heap"})).content.decode()
    found = applied(text)
    assert found[NODES["cdsp"]][1] == {"GROUP": "995", "MODE": "0640"}
    assert found[NODES["secure"]][1] == {}
