from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from fleet.cli import output, runtime
from fleet.model.errors import InputError, RuntimeStoreError
from tests.runtimes.fakes import ARM, BUILD, sdk_files, wheel_files, write_tree, write_zip

ID = f"qairt-{BUILD}"
app = typer.Typer()
app.callback()(lambda: None)
app.add_typer(runtime.app, name="runtime")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def call(*args: str) -> Result:
    return CliRunner().invoke(app, ["runtime", *args])


def good(*args: str) -> Result:
    result = call(*args)
    assert result.exit_code == 0, result.output
    return result


def test_add_list_show_files_remove(tmp_path: Path, home: Path) -> None:
    sdk = write_tree(tmp_path / "sdk", sdk_files())
    assert f"added {ID} ({ARM})" in good("add", str(sdk), "--target", ARM).stderr
    assert "nothing changed" in good("add", str(sdk)).stderr

    assert ID in good("list").stdout
    (listed,) = json.loads(good("list", "--json").stdout)
    assert (listed["id"], listed["targets"], listed["hexagon_archs"]) == (ID, [ARM], ["v73"])
    assert listed["root"] == str(home / "runtimes" / ID)
    assert "files" not in listed

    assert BUILD in good("show", "2.51.0").stdout
    assert "libQnnHtpV73Skel.so" in good("show", ID, "--files", "--check").stdout
    shown = json.loads(good("show", ID, "--json", "--files").stdout)
    assert {"path", "sha256", "machine", "build_id"} <= set(shown["files"][0])

    table = good("files", "2.51.0", "--target", ARM, "--arch", "v73").stdout
    assert "bin/genie-t2t-run" in table
    chosen = json.loads(good("files", ID, "--target", ARM, "--arch", "v73", "--json").stdout)
    assert (chosen["has_tool"], chosen["missing"]) == (True, [])
    assert "give the Hexagon arch with --arch" in good("files", ID, "--target", ARM).stderr
    assert "missing: " in good("files", ID, "--target", ARM, "--arch", "v75").stderr

    assert f"removed {ID}" in good("remove", "2.51.0").stderr
    assert json.loads(good("list", "--json").stdout) == []
    assert "fleet runtime fetch" in good("list").stderr


def test_list_reports_damage_and_goes_on(tmp_path: Path, home: Path) -> None:
    good("add", str(write_zip(tmp_path / "a.whl", wheel_files())))
    (home / "runtimes" / ID / f"lib/{ARM}/libGenie.so").unlink()
    result = good("list", "--json")
    assert len(json.loads(result.stdout)) == 1
    assert "libGenie.so is missing" in result.stderr


def test_fetch_offline() -> None:
    result = call("fetch", "2.51.0", "--target", ARM, "--offline")
    assert isinstance(result.exception, RuntimeStoreError)
    assert "offline" in result.exception.message


def test_fetch_of_what_is_there_is_quiet_on_standard_output(tmp_path: Path) -> None:
    good("add", str(write_zip(tmp_path / "a.whl", wheel_files())))
    result = good("fetch", "--target", ARM, "--offline")
    assert result.stdout == ""
    assert "nothing changed" in result.stderr


@pytest.mark.parametrize(
    "args",
    [
        ("add", "/nonexistent"),
        ("add", "https://127.0.0.1/x.zip"),
        ("show", "2.51.0"),
        ("remove", "2.51.0"),
        ("fetch", "latest", "--target", ARM),
        ("fetch", "2.51.0", "--target", "aarch64-linux"),
    ],
)
def test_wrong_input_is_an_input_error(args: tuple[str, ...]) -> None:
    assert isinstance(call(*args).exception, InputError)


@pytest.mark.parametrize("command", ["add", "fetch", "list", "show", "remove", "files"])
def test_every_command_shows_an_example(command: str) -> None:
    assert f"fleet runtime {command}" in good(command, "--help").stdout


def test_progress_is_shown_on_a_terminal_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    from rich.console import Console

    screen = io.StringIO()
    monkeypatch.setattr(output, "errors", Console(file=screen, force_terminal=True))
    good("add", str(write_zip(tmp_path / "a.whl", wheel_files())))
    assert "adding" in screen.getvalue()
    plain = io.StringIO()
    monkeypatch.setattr(output, "errors", Console(file=plain, force_terminal=False))
    good("add", str(write_zip(tmp_path / "a.whl", wheel_files())))
    assert "adding" not in plain.getvalue()
