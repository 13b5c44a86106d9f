"""Pinned packages: what they hold, kept in the repository, so that no archive is asked.

`python -m tests.contract.pinned SUITE` reads the packages that a suite of Debian has today and
writes tests/contract/texts/SUITE.json. FastRPC's rules, units and sysusers are under BSD-3-Clause
(tests/contract/texts/LICENSE). Of the package of DSP binaries, which is not free, only its name,
its version, its dependencies, the names of its files and the models of boards are kept.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from fleet.runtimes.stage import file_lock
from tests.apt import SECONDS, downloaded
from tests.contract.package import CONF, Package, of_archive
from tests.support_runtime import cache_root

FOLDER = Path(__file__).parent / "texts"
SUPPORT = "fastrpc-support"
SHELLS = "hexagon-dsp-binaries-qualcomm-iq9075-evk"
PACKAGES = (SUPPORT, "libfastrpc1", "libfastrpc-dev")
# The suite that the texts of a suite were read from, with that version and the one they stand for:
# 1.0.7-2~bpo13+1, which trixie-backports has not had since 2026-11-25, was 1.0.7-2 built again.
SUITES = {
    "trixie-backports": ("forky", "1.0.7-2", "1.0.7-2~bpo13+1"),
    "sid": ("sid", "1.0.8-1", "1.0.8-1"),
}


def pinned(suite: str) -> dict[str, Package]:
    """Return the pinned packages of a suite by name."""
    source, version, rebuilt = SUITES[suite]
    text = (FOLDER / f"{source}.json").read_text("utf-8").replace(version, rebuilt)
    every = json.loads(text)
    return {name: Package(**fields) for name, fields in every.items()}


def archive(suite: str) -> dict[str, Package]:
    """Return today's packages of a suite by name. Raises OSError with the words of apt."""
    names = PACKAGES if suite == "trixie-backports" else (*PACKAGES, SHELLS)
    folder = cache_root() / "contract" / suite
    with file_lock(cache_root() / "contract.lock", SECONDS):
        kept = downloaded(folder, names, "main contrib non-free-firmware", "arm64", suite)
        return {package.name: package for package in map(of_archive, kept)}


def support_deb(suite: str) -> Path:
    """Return the pinned fastrpc-support as a file. Skips the test if no archive has it any more."""
    source, version, _ = SUITES[suite]
    try:
        with file_lock(cache_root() / "contract.lock", SECONDS):
            folder = cache_root() / "contract" / f"{SUPPORT}-{version}"
            kept = [*folder.rglob("*.deb")]
            words = (f"{SUPPORT}={version}",)
            (deb,) = kept or downloaded(folder, words, "main", "arm64", source)
    except OSError as error:
        pytest.skip(f"the pinned packages of Debian cannot be had: {error}")
    return deb


def _free(package: Package) -> Package:
    """Return what may be kept of a package."""
    if package.name in PACKAGES:
        return package
    conf = {path: models(text) for path, text in package.files.items() if path.startswith(CONF)}
    return replace(package, files={**package.files, **conf}, postinst="")


def models(text: str) -> str:
    """Return the lines of a configuration of DSP binaries that name a model of a board."""
    return "".join(
        line for line in text.splitlines(keepends=True) if line[:3].strip() and line[:2] == "  "
    )


def main() -> None:
    """Write the file of a suite."""
    (suite,) = sys.argv[1:]
    kept = {name: asdict(_free(package)) for name, package in archive(suite).items()}
    text = json.dumps(kept, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    (FOLDER / f"{suite}.json").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
