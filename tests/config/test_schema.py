from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from fleet.config.inventory import load_inventory
from fleet.config.playbook import load_playbook
from fleet.config.schema import schema
from tests.config import test_inventory, test_playbook

ROOT = Path(__file__).parents[2]
KINDS = ("inventory", "playbook")
# What a schema cannot say: files and folders, YAML's number formats, ranges, cycles, names.
BEYOND_A_SCHEMA = re.compile(
    r"does not exist|is a file|cannot read|not UTF-8|NUL|larger|a user that|contains itself"
    r"|valid host name|valid group name|runs backwards|more than 10000|between 0 and 7 days|empty"
    r"|no value|no prompt|no runner|more than 0|a folder of its own|is not a valid path"
    r"|adds no device|between 100 ms and 1 min"
    r"|`repeats` asks|confidence level"
)


@pytest.fixture(scope="module")
def validators() -> dict[str, Draft202012Validator]:
    return {kind: Draft202012Validator(schema(kind)) for kind in KINDS}  # type: ignore[arg-type]


def examples() -> Iterator[tuple[str, str, str]]:
    """Kind, name and text of each example of the repository; docs say what a block is."""
    for kind, folder in (("inventory", "inventories"), ("playbook", "playbooks")):
        for path in sorted((ROOT / folder).glob("*.yaml")):
            text = path.read_text("utf-8")
            if "ansible_" not in text:
                yield kind, path.name, text
    for path in sorted((ROOT / "docs").glob("*.md")):
        pattern = r"<!-- (inventory|playbook) -->\n```yaml\n(.*?)```"
        for number, block in enumerate(re.finditer(pattern, path.read_text("utf-8"), re.DOTALL)):
            yield block[1], f"{path.name}-{number}", block[2]


EXAMPLES = list(examples())


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_a_schema(kind: str) -> None:
    body = schema(kind)  # type: ignore[arg-type]
    Draft202012Validator.check_schema(body)
    assert body["$schema"].endswith("2020-12/schema")


def properties(node: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(node, dict):
        yield from node.get("properties", {}).items()
        for key, each in node.items():
            if key != "if":  # a condition describes nothing
                yield from properties(each)
    elif isinstance(node, list):
        for each in node:
            yield from properties(each)


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_is_described(kind: str) -> None:
    found = list(properties(schema(kind)))  # type: ignore[arg-type]
    assert len(found) > 10
    assert [name for name, body in found if not body.get("description", "").endswith(".")] == []


@pytest.mark.parametrize(("kind", "name", "text"), EXAMPLES, ids=[each[1] for each in EXAMPLES])
def test_examples(
    kind: str, name: str, text: str, validators: dict[str, Draft202012Validator], tmp_path: Path
) -> None:
    validators[kind].validate(yaml.safe_load(text))
    path = tmp_path / "example.yaml"
    path.write_text(text, "utf-8")
    if kind == "inventory":
        assert load_inventory(path).hosts
        return
    body = yaml.safe_load(text)
    bundle = body["bundle"]["path"] if isinstance(body["bundle"], dict) else body["bundle"]
    folder = tmp_path / "playbooks"
    (folder / bundle).mkdir(parents=True)
    prompt = body.get("run", {}).get("prompt_file")
    if prompt:
        (folder / prompt).write_text("Hello", "utf-8")
    run, packages = body.get("run", {}), body.get("op_packages", [])
    named = [run.get("program"), *run.get("libraries", [])]
    named += [one.get(key) for one in packages for key in ("cpu", "htp")]
    for one in filter(None, named):
        place = folder / one.replace("*", "any")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    (folder / "example.yaml").write_text(text, "utf-8")
    assert load_playbook(folder / "example.yaml").name == body["name"]


def test_there_are_examples_in_the_docs() -> None:
    kinds = [kind for kind, name, _ in EXAMPLES if ".md-" in name]
    assert set(kinds) == set(KINDS)


BAD = [
    ("inventory", f"all:\n  hosts:\n    evk:\n      {body}\n", message)
    for body, _, message, _ in test_inventory.BAD_VALUES
    if not re.search(r"\{\{|!vault|022|22:10", body)
]
BAD += [("inventory", text, message) for text, _, message, _ in test_inventory.BAD_FILES]
BAD += [("playbook", text, message) for text, _, message, _ in test_playbook.BAD]
BAD = [each for each in BAD if not BEYOND_A_SCHEMA.search(each[2])]


@pytest.mark.parametrize(("kind", "text", "message"), BAD)
def test_the_schema_refuses_what_the_loader_refuses(
    kind: str, text: str, message: str, validators: dict[str, Draft202012Validator]
) -> None:
    assert not validators[kind].is_valid(yaml.safe_load(text)), message


@pytest.mark.parametrize(
    ("run", "valid"),
    [
        ({"runner": "genie"}, False),
        ({"runner": "genie", "chat": {"user": "hi"}}, True),
        ({"runner": "genie", "options": {"tokens_file": "a.txt"}}, True),
        ({"runner": "genie", "options": {"lora": "a"}}, False),
        ({"runner": "genai"}, False),
        ({"runner": "qnn-net-run"}, True),
    ],
)
def test_a_runner_that_needs_a_prompt_says_so_in_the_schema(
    run: dict[str, Any], valid: bool, validators: dict[str, Draft202012Validator]
) -> None:
    playbook = {"name": "x", "bundle": ".", "run": run}
    assert validators["playbook"].is_valid(playbook) is valid
