"""What is installed for development and by `make demo` is pinned, by version and SHA-256."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
BLOCK = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)[^\n]*\n((?: +[^\n]*\n)*)", re.MULTILINE)
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}\b")


def locked(name: str) -> dict[str, list[tuple[Version, int]]]:
    """Of each package the pinned versions (one for each range of Pythons), and their hashes."""
    text = (ROOT / ".ci" / "requirements" / name).read_text("utf-8")
    found: dict[str, list[tuple[Version, int]]] = {}
    for package, version, hashes in BLOCK.findall(text):
        pins = found.setdefault(canonicalize_name(package), [])
        pins.append((Version(version), len(HASH.findall(hashes))))
    return found


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        ("install.txt", PROJECT["dependencies"]),
        ("dev.txt", [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]),
    ],
)
def test_every_requirement_is_pinned_as_pyproject_allows(file: str, wanted: list[str]) -> None:
    pins = locked(file)
    for requirement in map(Requirement, wanted):
        versions = pins[canonicalize_name(requirement.name)]
        assert all(version in requirement.specifier for version, _ in versions), requirement
    assert all(hashes for versions in pins.values() for _, hashes in versions)


def test_make_installs_by_hash_only() -> None:
    texts = [(ROOT / name).read_text("utf-8") for name in ("Makefile", ".ci/venv.sh")]
    lines = [line for text in texts for line in text.splitlines() if "pip install" in line]
    assert len(lines) == 2
    assert all("--require-hashes" in line or "--no-deps" in line for line in lines)


def test_the_page_installs_what_make_installs() -> None:
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    assert "pip install --require-hashes -r .ci/requirements/install.txt\n" in page
    assert "pip install --no-deps --no-build-isolation ." in page
