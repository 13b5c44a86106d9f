"""A case: a board, a wish, and what must come of it; all in one JSON file.

`on` names a board of cases/boards.json; `facts` and `state` change it. `wish` is the
`fastrpc:` and `system:` of a playbook. `expect` lists each action with its commands and its
way back, and the findings as `rule severity`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from fleet.config.playbook import load_playbook
from fleet.model.facts import DeviceNode, Facts, User
from fleet.model.plan import Action
from fleet.model.system import FileSeen, PackageSeen, RuleSeen, SystemSpec, SystemState, UnitSeen
from fleet.ops.system.provision import SystemPlan, provision

CASES = Path(__file__).parent / "cases"
BUNDLE = Path(__file__).parents[2] / "assets" / "tiny-genie"


def merged(case: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Facts and state of a case: those of its board, with the case's own keys in their place."""
    board = json.loads((CASES / "boards.json").read_text("utf-8"))[case["on"]]
    facts = {**board["facts"], **case.get("facts", {})}
    state = dict(board["state"])
    for key, value in case.get("state", {}).items():
        known = state.get(key)
        state[key] = {**known, **value} if isinstance(known, dict) else value
    return facts, state


def facts_of(data: dict[str, Any]) -> Facts:
    name, uid, database, live = data["user"]
    nodes = [
        DeviceNode(path, mode is not None, mode, owner, group, error)
        for path, mode, owner, group, error in data["nodes"]
    ]
    return Facts(
        user=User(name, uid, f"/home/{name}", tuple(database.split()), tuple(live.split())),
        nodes=tuple(nodes),
        libcdsprpc=tuple(data.get("libcdsprpc", ())),
        libcdsprpc_unversioned=any(p.endswith(".so") for p in data.get("libcdsprpc", ())),
        libatomic=data.get("libatomic"),
        libstdcpp=data.get("libstdcpp"),
        qnn_libraries=tuple(data.get("qnn_libraries", ())),
        base_dir=f"/home/{name}/fleet",
    )


def state_of(data: dict[str, Any]) -> SystemState:
    return SystemState(
        manager=data.get("manager"),
        lists=data.get("lists"),
        sources=tuple(data.get("sources", ())),
        packages={k: PackageSeen(*v) for k, v in data.get("packages", {}).items()},
        groups={k: None if v is None else tuple(v) for k, v in data.get("groups", {}).items()},
        files={k: _file(v) for k, v in data.get("files", {}).items()},
        units={k: UnitSeen(*v) for k, v in data.get("units", {}).items()},
        rules=tuple(RuleSeen(path, tuple(lines)) for path, lines in data.get("rules", ())),
        tools=frozenset(data.get("tools", ())),
        skels=tuple(data.get("skels", ())),
        on_path=tuple(data.get("on_path", ())),
        trees=tuple(data.get("trees", ())),
        reboot_required=data.get("reboot_required", False),
        acls=frozenset(data.get("acls", ())),
        tried=frozenset(data.get("tried", ())),
    )


def _file(value: dict[str, str]) -> FileSeen:
    text = value.get("text")
    return FileSeen(
        value["kind"],
        value.get("mode", ""),
        value.get("owner", ""),
        value.get("group", ""),
        None if text is None else text.encode("latin-1"),
        value.get("target", ""),
    )


def spec_of(wish: dict[str, Any], folder: Path) -> SystemSpec:
    """Through the real loader, from a playbook file."""
    body = {"name": "case", "bundle": str(BUNDLE), **wish}
    for name, text in wish.get("beside", {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    body.pop("beside", None)
    path = folder / "playbook.yaml"
    path.write_text(yaml.safe_dump(body), "utf-8")
    return load_playbook(path).system


def run(case: dict[str, Any], folder: Path) -> SystemPlan:
    facts, state = merged(case)
    return provision(spec_of(case["wish"], folder), facts_of(facts), state_of(state))


def said(plan: SystemPlan) -> dict[str, Any]:
    """What came of it, in the words of `expect`."""
    return {
        "actions": [_action(step) for step in plan.steps],
        "findings": [f"{one.rule} {one.severity}" for one in plan.findings],
    }


def _action(step: Action) -> dict[str, Any]:
    found: dict[str, Any] = {"does": step.describe(), "root": step.needs_root}
    if step.commands():
        found["runs"] = [" ".join(command.argv) for command in step.commands()]
    if step.undo():
        found["undo"] = [" ".join(command.argv) for command in step.undo()]
    if step.no_undo:
        found["no undo"] = step.no_undo
    return found
