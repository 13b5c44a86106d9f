"""The list of the gate names tests that are there."""

from __future__ import annotations

import ast

from tests.tiers import LIST, ROOT, gate


def test_each_test_of_the_gate_is_there() -> None:
    missing = []
    for name in gate():
        path, _, function = name.partition("::")
        tree = ast.parse((ROOT / path).read_text("utf-8")) if (ROOT / path).is_file() else None
        names = (
            {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} if tree else ()
        )
        if function not in names:
            missing.append(name)
    assert missing == []


def test_the_list_is_in_order() -> None:
    lines = LIST.read_text("utf-8").splitlines()[1:]
    assert lines == sorted(set(lines))
