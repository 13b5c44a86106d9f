"""Files with many mistakes: each kind of file reports all of them at once, with place and cure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fleet.cli import output
from fleet.config import project
from fleet.config.inventory import read_inventory
from fleet.config.lockfile import load_lock
from fleet.config.playbook import load_playbook, playbook_errors
from fleet.config.suite_file import load_suite
from fleet.model.errors import InputError
from fleet.model.plain import to_plain

SECRET = (
    "the value is not a valid reference to a secret (the file must not contain the secret itself)"
)
Mistake = tuple[int, int, str]  # line, column, message
PLAYBOOK = """\
name: llm
name: other
bundle: {path: bundle, config: [a.json]}
runtime: {wheel: perhaps}
run:
  prompt: hi
  env: {"A B": x}
  cool: {below: 45, timeout: -3s}
  until: {narrower: 3%, level: high}
  sample: 2h
verify:
  suite: tiny
  gate: never
  samples: {tolerance: wide}
system:
  packages: [bad name!]
  groups: {fastrpc: me}
rollout: {canary: 1, soak: forever, waves: [10%, {a: 1}]}
op_packages: {x: 1}
"""
INVENTORY = """\
boards:
  hosts:
    evk-[03:01]: {}
    "evk 9": {}
    evk-01: {identity_file: [1], known_hosts: {}}
    evk-02: {become_password: "vault:x"}
    evk-03: {transport: telnet, adb_server: here, serial: 5}
    evk-04: {until: tomorrow, target: "x y"}
    evk-05: {labels: {site: 3}}
    evk-05: {port: 0}
    evk-06: [a]
  children: [iq9]
  var: {user: x}
  vars: {ansible_group_priority: high}
"""
PROJECT = """\
inventory: [a, b]
parallel: 10000
repeats: 1.5
executor: "dask:// host"
parallel: 4
"""
LOCK = """\
schema: 1
name: "a b"
playbook: ABC
releases:
- target: t
  arch: v73
  id: xyz
  build_id: ""
  env: {A: 3}
  count: -1
  files:
  - {name: a, sha256: no, size: -5}
  - {name: b, size: 3, mode: 755}
"""
SUITE = """\
name: 3
template: llama3
prompts:
  - user: [hi]
    expect: {length: {min_words: -1}, choice: {right: A}}
  - messages: [{role: robot, content: hi}]
  - tokens: [1, -2, a]
at_lest: 3
"""


def raised(read: Callable[[], object]) -> Sequence[InputError]:
    """Return the error that `read` raises, and the others of the same file."""
    with pytest.raises(InputError) as caught:
        read()
    first, others = caught.value, caught.value.others
    if others:
        assert f" (and {len(others)} more, line " in first.message
    first.message = first.message.partition(" (and ")[0]
    return [first, *(error for error in others if isinstance(error, InputError))]


READ: dict[str, Callable[[Path], Sequence[InputError]]] = {
    "playbook": playbook_errors,
    "deployed playbook": lambda path: raised(lambda: load_playbook(path)),
    "inventory": lambda path: read_inventory(path).errors,
    "fleet.yaml": lambda path: raised(lambda: project.load(path)),
    "fleet.lock": lambda path: raised(lambda: load_lock(path)),
    "suite": lambda path: raised(lambda: load_suite(path.name, path.parent, path.parent)),
}
OF_PLAYBOOK = [
    (2, 1, "the key 'name' occurs twice (the first time in line 1)"),
    (3, 32, "'config' must be text, not a list"),
    (4, 11, "unknown key 'wheel'"),
    (7, 3, "unknown key 'env'"),
    (8, 30, "'-3s' is not a duration"),
    (9, 32, "'high' is not a percentage between 0% and 100%"),
    (10, 11, "'sample' is 7200 s; it must be between 100 ms and 1 min"),
    (12, 3, "unknown key 'suite'"),
    (13, 9, "'never' is not a value of 'gate'"),
    (14, 12, "'samples' must be a list, not a mapping"),
    (16, 14, "'bad name!' is not a valid package name"),
    (17, 11, "'groups' must be a list, not a mapping"),
    (18, 28, "'forever' is not a duration"),
    (18, 44, "the value must be a count or a percentage, not a mapping"),
    (19, 14, "'op_packages' must be a list, not a mapping"),
]
MISTAKES: list[tuple[str, str, list[Mistake]]] = [
    ("playbook", PLAYBOOK, OF_PLAYBOOK),
    ("deployed playbook", PLAYBOOK, OF_PLAYBOOK),
    ("inventory", INVENTORY, [
        (3, 5, "the range [03:01] runs backwards"),
        (4, 5, "'evk 9' is not a valid host name"),
        (5, 30, "'identity_file' must be text, and YAML reads this as a number"),
        (5, 47, "'known_hosts' must be text, not a mapping"),
        (6, 31, SECRET),
        (7, 25, "'telnet' is not a value of 'transport'"),
        (7, 45, "'here' is not a valid address of an adb server"),
        (7, 59, "'serial' must be text, and YAML reads this as a number"),
        (8, 21, "'tomorrow' is not a time in UTC"),
        (8, 39, "'x y' is not a valid QAIRT target name"),
        (9, 29, "'site' must be text, and YAML reads this as a number"),
        (10, 5, "the key 'evk-05' occurs twice (the first time in line 9)"),
        (11, 13, "'evk-06' must be a mapping, not a list"),
        (12, 13, "'children' must be a mapping, not a list"),
        (13, 3, "'var' is not a key of a group"),
        (14, 34, "'ansible_group_priority' must be a whole number, not text"),
    ]),
    ("fleet.yaml", PROJECT, [
        (1, 12, "'inventory' must be text, not a list"),
        (2, 11, "'parallel' must be at most 9999, not 10000"),
        (3, 10, "'repeats' must be a whole number, not a decimal number"),
        (4, 11, "'dask:// host' is not a valid executor"),
        (5, 1, "the key 'parallel' occurs twice (the first time in line 2)"),
    ]),
    ("fleet.lock", LOCK, [
        (2, 7, "'a b' is not a valid word"),
        (3, 11, "'ABC' is not a valid sha256"),
        (7, 7, "'xyz' is not a valid release id"),
        (9, 12, "'A' must be text, and YAML reads this as a number"),
        (10, 10, "'count' must be at least 0, not -1"),
        (12, 23, "'sha256' must be text, and YAML reads this as a boolean"),
        (12, 33, "'size' must be at least 0, not -5"),
        (13, 5, "key 'sha256' is missing"),
        (13, 24, "unknown key 'mode'"),
    ]),
    ("suite", SUITE, [
        (1, 7, "'name' must be text, and YAML reads this as a number"),
        (4, 11, "'user' must be text, not a list"),
        (5, 34, "'min_words' must be at least 0, not -1"),
        (5, 47, "key 'of' is missing"),
        (6, 23, "'robot' is not a value of 'role'"),
        (7, 17, "'tokens' must be at least 0, not -2"),
        (7, 21, "'tokens' must be a whole number, not text"),
        (8, 1, "unknown key 'at_lest'"),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "mistakes"), MISTAKES, ids=[row[0] for row in MISTAKES])
def test_each_file_reports_all_mistakes_at_once(
    tmp_path: Path, kind: str, text: str, mistakes: list[Mistake]
) -> None:
    path = tmp_path / ("fleet.yaml" if kind == "fleet.yaml" else "file.yaml")
    path.write_text(text, "utf-8")
    errors = READ[kind](path)
    assert [(at.line, at.column, e.message) for e in errors if (at := e.position)] == mistakes
    assert all(error.hint for error in errors)


def test_the_command_line_prints_each_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(PROJECT, "utf-8")
    with pytest.raises(InputError) as caught:
        project.load(path)
    output.show_error(caught.value)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(f"{path}:")[2][:4] for line in lines if line.startswith("error: ")] == [
        "1:12", "2:11", "3:10", "4:11", "5:1:",
    ]  # fmt: skip
    assert sum(line.startswith("  try: ") for line in lines) == 5
    others = to_plain(caught.value)["others"]
    assert [other["position"] for other in others][:1] == [f"{path}:2:11"]
