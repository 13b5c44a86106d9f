"""The pages say what the code does: commands, errors, faults, links."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import rich.markup

from fleet.cli.main import renewed
from fleet.lab.lab import FAULTS
from fleet.lab.profiles import _table
from fleet.model import errors
from fleet.profiles.formats.detect import KNOWN

from .reference import made
from .tree import commands, options

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def test_the_page_of_commands_is_that_of_the_commands() -> None:
    text = page("commands.md")
    assert made(text) == text, "python -m tests.docs.reference"
    assert "\nExample:" not in text  # every line of an example can be pasted
    head, _, rest = text.partition("### `fleet config session`\n")
    assert "\nfleet config session --end sa1" in made(head + rest[rest.index("### `fleet") :])


@pytest.mark.parametrize("name", [name for name, _ in commands()])
def test_every_command_has_an_example_in_its_help(name: str) -> None:
    help_text = dict(commands())[name].help or ""
    assert "Example" in help_text, name


@pytest.mark.parametrize("name", [name for name, _ in commands()])
def test_no_help_is_taken_for_markup(name: str) -> None:
    """`npu-fleet[aihub]` would be shown as `npu-fleet`; a bracket that stays is escaped."""
    command = dict(commands())[name]
    for text in (command.help or "", *(one for _, one in options(command))):
        assert rich.markup.render(text).plain == text.replace("\\[", "["), name


def test_every_error_is_on_the_page() -> None:
    text = page("errors.md")
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.FleetError):
            row = next((line for line in text.splitlines() if f"`{name}`" in line), "")
            assert row, name
            assert f"| {kind.exit_code} |" in row, name


def test_every_exit_code_is_in_the_one_table() -> None:
    """Those of errors, and those that a command gives by itself (`typer.Exit(5)`)."""
    text = page("errors.md")
    shown = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    real = {kind.exit_code for kind in kinds if issubclass(kind, errors.FleetError)}
    for path in (ROOT / "fleet" / "cli").glob("*.py"):
        real |= {int(code) for code in re.findall(r"\bExit\((\d+)\)", path.read_text("utf-8"))}
    assert shown == {0, *real}
    assert "errors.md#exit-codes" in page("commands.md")


def test_every_fault_and_profile_is_on_the_page() -> None:
    text = page("lab.md")
    for name in (*FAULTS, "new-host-key", *_table("profiles")):
        assert f"`{name}`" in text, name


PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", ROOT / "assets" / "README.md"]


@pytest.mark.parametrize("path", PAGES)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text("utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_there_are_as_many_causes_as_the_page_claims() -> None:
    """A round number, so that a new cause does not touch README."""
    text = (ROOT / "README.md").read_text("utf-8")
    (claimed,) = re.findall(r"\[over (\d+)00 causes as data\]", text)
    there = len(list((ROOT / "fleet" / "data" / "causes").glob("*.yaml")))
    assert there // 100 == int(claimed)


def test_no_page_measures_with_the_chat_of_llama_cpp() -> None:
    """The runner refuses llama-cli, so no cure and no list of formats may ask for it."""
    kinds = page("profiles.md").partition("| kind | what is read |")[2].partition("\n\n")[0]
    assert "llama-completion" in kinds
    assert "llama-completion" in KNOWN
    for text in (
        kinds,
        KNOWN,
        *re.findall(r"^ *`(llama-.*)`$", page("troubleshooting.md"), re.MULTILINE),
    ):
        assert "llama-cli" not in text


def test_no_page_types_an_old_command() -> None:
    """The table of old words is on the page of commands; evidence keeps what was typed then."""
    wrong = []
    for path in PAGES:
        if path.name in {"commands.md", "CHANGELOG.md"} or "evidence" in path.parts:
            continue
        text = path.read_text("utf-8")
        for found in re.findall(r"`fleet ([^`\n]+)`|^(?:\$ )?fleet ([^\n#]+)", text, re.MULTILINE):
            line = (found[0] or found[1]).strip()
            try:
                words = shlex.split(line)
            except ValueError:
                continue
            wrong += [f"{path.name}: fleet {line}: {said}" for said in renewed(words)[1]]
    assert wrong == []
