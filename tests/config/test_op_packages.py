"""`op_packages:` of a playbook."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.config.playbook import load_playbook
from fleet.config.schema import schema
from fleet.model.errors import PlaybookError
from fleet.model.op_package import OpPackageSpec

LEAST = "{name: X, cpu: ops/cpu/libX.so}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bundle").mkdir()
    for name in ("cpu", "htp"):
        (tmp_path / "ops" / name).mkdir(parents=True)
        (tmp_path / "ops" / name / "libX.so").write_bytes(b"")
    return tmp_path


def load(folder: Path, section: str) -> tuple[OpPackageSpec, ...]:
    path = folder / "p.yaml"
    path.write_text(f"name: n\nbundle: bundle\nop_packages:\n{section}\n")
    return load_playbook(path).op_packages


def refused(folder: Path, section: str) -> PlaybookError:
    with pytest.raises(PlaybookError) as caught:
        load(folder, section)
    assert caught.value.hint
    return caught.value


def test_none_is_the_default(folder: Path) -> None:
    assert load(folder, "  []") == ()


def test_the_least_and_everything(folder: Path) -> None:
    cpu, htp = folder / "ops/cpu/libX.so", folder / "ops/htp/libX.so"
    assert load(folder, f"  - {LEAST}") == (OpPackageSpec("X", cpu),)
    whole = """
  - name: QnnLLaMAPackage
    cpu: ops/cpu/libX.so
    htp: ./ops/htp/libX.so
    provider: LLaMAPackageInterfaceProvider
    qairt: "2.41.0.251128"
"""
    assert load(folder, whole) == (
        OpPackageSpec(
            "QnnLLaMAPackage", cpu, htp, "LLaMAPackageInterfaceProvider", "2.41.0.251128"
        ),
    )


@pytest.mark.parametrize(
    ("section", "message", "line"),
    [
        ("  - {name: X}", "key 'cpu' is missing", 4),
        ("  - {name: X, cpu: ops/cpu/libX.so, hpt: b.so}", "unknown key 'hpt'", 4),
        ("  - {name: X, cpu: ops/cpu/libY.so}", "does not exist", 4),
        ("  - {name: X, cpu: ops/cpu}", "is a folder", 4),
        (f"  - {LEAST}\n  - {LEAST}", "is listed twice", 5),
        ("  - {name: libQnnX, cpu: ops/cpu/libX.so}", "is not a valid name of an op package", 4),
        ("  - {name: X.so, cpu: ops/cpu/libX.so}", "is not a valid name of an op package", 4),
        ("  - {name: ../X, cpu: ops/cpu/libX.so}", "is not a valid name of an op package", 4),
        ('  - {name: "X:Y", cpu: ops/cpu/libX.so}', "is not a valid name of an op package", 4),
        ("  - {name: X, cpu: ops/cpu/libX.so, provider: a b}", "valid name of a function", 4),
        (
            "  - {name: X, cpu: ops/cpu/libX.so, qairt: 2.41}",
            "YAML reads this as a decimal number",
            4,
        ),
        ("  - {name: X, cpu: ops/cpu/libX.so, qairt: bundle}", "is not a valid QAIRT version", 4),
        ("  {name: X, cpu: ops/cpu/libX.so}", "must be a list", 4),
    ],
)
def test_errors_have_a_place(folder: Path, section: str, message: str, line: int) -> None:
    with pytest.raises(PlaybookError) as caught:
        load(folder, section)
    assert message in caught.value.message
    assert caught.value.position is not None
    assert caught.value.position.line == line
    assert caught.value.position.column > 0


def test_a_near_name_is_suggested(folder: Path) -> None:
    error = refused(folder, "  - {name: X, cpu: ops/cpu/libXX.so}")
    assert error.hint == "did you mean libX.so?"


def test_the_schema_knows_the_section() -> None:
    assert "op_packages" in schema("playbook")["properties"]
