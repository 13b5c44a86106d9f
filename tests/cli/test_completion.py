"""What TAB offers, asked as bash, zsh and fish ask, and the table against the commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.cli.completion import offers
from tests import needs
from tests.docs.reference import TABLE, table

INVENTORY = """
evks:
  hosts:
    evk-01: {host: 127.0.0.1}
    evk-02: {host: 127.0.0.1}
phones:
  hosts:
    s24: {transport: adb}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "lab.yaml").write_text(INVENTORY)
    (tmp_path / "fleet.yaml").write_text("inventory: lab.yaml\nruns: runs\n")
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "playbooks" / "chat.yaml").write_text("")
    for run in ("20261101-100000-aaaa", "20261102-100000-bbbb"):
        (tmp_path / "runs" / run).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLEET_INVENTORY", raising=False)
    return tmp_path


def offered(line: str) -> list[str]:
    words = line.split(" ")
    return [word for word, _ in offers(words[1:-1], words[-1])]


def test_the_table_is_that_of_the_commands() -> None:
    assert table() + "\n" == TABLE.read_text("utf-8"), "python -m tests.docs.reference"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fleet dep", ["deploy"]),
        ("fleet profiles base", ["baseline"]),
        ("fleet profiles baseline s", ["save"]),
        ("fleet deploy --dry", ["--dry-run"]),
        ("fleet facts evk", ["evks", "evk-01", "evk-02"]),
        ("fleet facts -l evk-01,s", ["evk-01,s24"]),
        ("fleet reserve s24 evk-0", ["evk-01", "evk-02"]),
        ("fleet shell s24 ", []),
        ("fleet deploy --limit ph", ["phones"]),
        ("fleet deploy -i other.yaml play", ["playbooks/chat.yaml"]),
        ("fleet deploy --resume ", ["last", "20261102-100000-bbbb", "20261101-100000-aaaa"]),
        ("fleet lab inject node", ["node-root-only"]),
        ("fleet logs --kind d", ["dmesg"]),
        ("fleet nonsense x", []),
    ],
)
@pytest.mark.usefixtures("project")
def test_what_is_offered(line: str, expected: list[str]) -> None:
    assert offered(line) == expected


def ask(shell: str, line: str, **env: str) -> subprocess.CompletedProcess[str]:
    words = line.split(" ")
    return subprocess.run(
        [sys.executable, "-m", "fleet"], capture_output=True, text=True, check=False,
        env={
            **os.environ, "_FLEET_COMPLETE": f"complete_{shell}", "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1), "_TYPER_COMPLETE_ARGS": line, **env,
        },
    )  # fmt: skip


def test_each_shell_is_answered_in_its_own_way(project: Path) -> None:
    assert ask("bash", "fleet facts evk-").stdout == "evk-01\nevk-02\n"
    assert ask("zsh", "fleet dep").stdout.startswith('_arguments \'*: :(("deploy":"Bring')
    assert ask("zsh", "fleet push ./fi").stdout == "_files\n"
    fish = ask("fish", "fleet dep", _TYPER_COMPLETE_FISH_ACTION="get-args").stdout
    assert fish.startswith("deploy\tBring")
    assert ask("fish", "fleet push ./fi", _TYPER_COMPLETE_FISH_ACTION="is-args").returncode == 1
    (project / "lab.yaml").write_text("no: [yaml")
    broken = ask("bash", "fleet facts evk-")
    assert (broken.returncode, broken.stdout, broken.stderr) == (0, "", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_that_is_installed_works_in_the_shell_itself(shell: str, project: Path) -> None:
    needs.tool(shell)
    program = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{program}:{os.environ['PATH']}", "HOME": str(project)}
    script = subprocess.run(
        ["fleet", "--show-completion", shell], capture_output=True, text=True, check=True,
        env={**env, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    ).stdout  # fmt: skip
    (project / "script").write_text(script)
    code = {
        "bash": "source ./script; COMP_WORDS=(fleet facts evk-); COMP_CWORD=2;"
        " _fleet_completion fleet; echo ${COMPREPLY[@]}",
        "zsh": "compdef() { :; }; _arguments() { echo $*; }; source ./script;"
        " words=(fleet facts evk-); CURRENT=3; _fleet_completion",
        "fish": "source ./script; complete -C 'fleet facts evk-'",
    }[shell]
    said = subprocess.run(
        [shell, "-c", code], capture_output=True, text=True, check=True, env=env
    ).stdout
    assert "evk-01" in said
    assert "evk-02" in said
    assert "s24" not in said


BASH = {"_FLEET_COMPLETE": "complete_bash", "COMP_WORDS": "fleet de", "COMP_CWORD": "1"}


def test_what_is_imported_for_tab_and_help() -> None:
    for argv, env, allowed in (
        ([], BASH, set()),
        (["--help"], {}, {"typer", "rich"}),
    ):
        code = (
            "import sys\nimport fleet.cli.entry as entry\n"
            f"sys.argv = ['fleet', *{argv!r}]\n"
            "try: entry.main()\nexcept SystemExit: pass\n"
            "print(' '.join(sys.modules), file=sys.stderr)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={**os.environ, **env},
        )  # fmt: skip
        tops = {name.partition(".")[0] for name in done.stderr.split()}
        assert tops & {"typer", "rich", "yaml", "paramiko", "pydantic"} <= allowed
        assert not [name for name in done.stderr.split() if name.startswith("fleet.engine")]
