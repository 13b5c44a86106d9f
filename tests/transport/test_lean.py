"""What is left out of paramiko's import is left out where no other thread can see it."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version

import pytest

# The import of paramiko stops half way, until it is let go. (A finder would hold all imports.)
HELD = """
import importlib, json, sys, threading

class Held:
    def __init__(self):
        self.half, self.go, self.seen = threading.Event(), threading.Event(), None

    def __call__(self, event, args):
        if event == "import" and args[0] == "paramiko.transport" and not self.half.is_set():
            self.seen = "kept out" if sys.modules.get("invoke", self) is None else "free"
            self.half.set()
            assert self.go.wait(60)

held = Held()
sys.addaudithook(held)
"""


def printed(*lines: str) -> object:
    """What a Python of its own prints after these lines, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", HELD + "\n".join(lines)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("other", "result"),
    [
        ("importlib.import_module('fleet.runners.registry').__name__", "fleet.runners.registry"),
        ("importlib.import_module('importlib.metadata').version('pip')", version("pip")),
        ("importlib.import_module('invoke').__name__", "invoke"),
    ],
)
def test_a_thread_sees_whole_modules_while_another_one_makes_a_transport(
    other: str, result: str
) -> None:
    found = printed(
        "def make():",
        "    from fleet.model.inventory import Host",
        "    from fleet.transport import transport_for",
        "    transport_for(Host('b', address='127.0.0.1'))",
        "maker = threading.Thread(target=make)",
        "maker.start()",
        "assert held.half.wait(60)",
        "said = []",
        "def look():",
        f"    try: said.append({other})",
        "    except BaseException as error: said.append(repr(error))",
        "looker = threading.Thread(target=look)",
        "looker.start()",
        "looker.join()",
        "held.go.set()",
        "maker.join()",
        "print(json.dumps(said))",
    )
    assert found == [result]


EARLY = "from fleet.transport.lean import import_early as early"
REPORT = "print(json.dumps([held.seen, 'invoke' in sys.modules]))"


def test_alone_in_the_main_thread_invoke_is_kept_out_and_match_exec_needs_none() -> None:
    found = printed(
        EARLY,
        "held.go.set()",
        "early()",
        "before = [held.seen, 'invoke' in sys.modules]",
        "from fleet.transport.lean import run_match_exec",
        "run_match_exec()",
        "import paramiko.config",
        "run = paramiko.config.invoke.run",
        "told = [run(line, hide='stdout').ok for line in ('true', 'read line', 'exit 3')]",
        "print(json.dumps([before, told, 'invoke' in sys.modules]))",
    )
    assert found == [["kept out", False], [True, False, False], False]


def test_beside_a_thread_nothing_is_imported() -> None:
    found = printed(
        EARLY,
        "held.go.set()",
        "done = threading.Event()",
        "threading.Thread(target=done.wait).start()",
        "early()",
        "done.set()",
        REPORT,
    )
    assert found == [None, False]


def test_in_another_thread_nothing_is_imported() -> None:
    found = printed(
        EARLY,
        "held.go.set()",
        "other = threading.Thread(target=early)",
        "other.start()",
        "other.join()",
        REPORT,
    )
    assert found == [None, False]
