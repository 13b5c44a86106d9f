"""`fleet bundle inspect` as a user calls it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from fleet.cli import bundle
from fleet.model.errors import BundleError
from fleet.runtimes.store import RuntimeStore
from tests.bundles import elves

ASSETS = Path(__file__).parents[2] / "assets" / "tiny-genie"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def call(*args: str) -> Result:
    app = typer.Typer()
    app.add_typer(bundle.app, name="bundle")
    return CliRunner().invoke(app, ["bundle", *args])


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ASSETS, tmp_path / "tiny-genie")
    return tmp_path / "tiny-genie"


def test_a_good_bundle() -> None:
    done = call("inspect", str(ASSETS))
    assert done.exit_code == 0, done.output
    for word in ("2.51.0.260929181845", "QCS9100", "v73", "markers", "tool-versions.yaml"):
        assert word in done.stdout
    assert "next: fleet plan" in done.stderr
    assert "fleet runtime fetch --target x86_64-linux-clang" in done.stderr


def test_json() -> None:
    value = json.loads(call("inspect", str(ASSETS), "--json").stdout)
    assert value["usable"] is True
    assert value["qairt"] == "2.51.0.260929181845"
    assert value["contexts"][0]["hexagon_arch"] == "v73"
    assert value["problems"] == []
    assert {item["name"] for item in value["files"]} == {path.name for path in ASSETS.iterdir()}
    assert all(item["sha256"] for item in value["files"])


def test_no_hash() -> None:
    value = json.loads(call("inspect", str(ASSETS), "--json", "--no-hash").stdout)
    assert {item["sha256"] for item in value["files"]} == {""}
    assert value["checked_by"] == ""


def test_an_unusable_bundle_ends_with_1(copy: Path) -> None:
    (copy / "tokenizer.json").unlink()
    (shard,) = copy.glob("*.bin")
    shard.write_bytes(b"<html>404</html>")
    done = call("inspect", str(copy))
    assert done.exit_code == 1
    assert "tokenizer.json is missing" in done.stderr
    assert "a web page" in done.stderr
    assert ", but SHA256SUMS has " in done.stderr
    assert "next: correct the problems above" in done.stderr
    value = json.loads(call("inspect", str(copy), "--json").stdout)
    assert len(value["problems"]) == 3


def test_no_bundle(tmp_path: Path) -> None:
    done = call("inspect", str(tmp_path))
    assert isinstance(done.exception, BundleError)


def test_op_packages_side_by_side(tmp_path: Path) -> None:
    cpu, htp, bad = tmp_path / "cpu.so", tmp_path / "htp.so", tmp_path / "bad.so"
    cpu.write_bytes(elves.shared_object(android=True))
    htp.write_bytes(elves.shared_object("hexagon", arch=0x75, text="nothing"))
    done = call("op-package", str(cpu), str(htp))
    assert done.exit_code == 0, done.output
    for word in ("aarch64", "android", elves.BUILD, "hexagon-v75", "unknown", "htp:"):
        assert word in done.stdout
    bad.write_bytes(b"text")
    done = call("op-package", "--json", str(cpu), str(bad), str(htp))
    assert done.exit_code == 1
    value = json.loads(done.stdout)
    assert [one["kind"] for one in value["libraries"]] == ["aarch64", "hexagon-v75"]
    assert [one["role"] for one in value["libraries"]] == ["CPU", "HTP"]
    assert str(bad) in value["errors"][0]["message"]


@pytest.mark.qairt
def test_with_the_library_of_the_store(qairt_store: RuntimeStore, home: Path, copy: Path) -> None:
    home.mkdir()
    (home / "runtimes").symlink_to(qairt_store.root)
    assert "libQnnSystem" in call("inspect", str(copy)).stdout
    (shard,) = copy.glob("*.bin")
    shard.write_bytes(shard.read_bytes()[:-1])
    done = call("inspect", str(copy))
    assert done.exit_code == 1
    assert "30010" in done.stderr
