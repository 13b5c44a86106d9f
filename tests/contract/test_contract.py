"""Debian's packages of FastRPC against the table and the lab that stand for them.

The pinned ones are compared with each landing, today's by `make test-contract`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from fleet.data import load
from fleet.device.texts import text_of
from fleet.lab.debian import SHELLS_VERSION, VERSIONS, debian
from fleet.ops.system.packaging import packagings
from fleet.runtimes.lock import file_lock
from tests.apt import SECONDS, downloaded
from tests.contract.compare import differences, machines, of_table, shells
from tests.contract.package import Package, of_archive, of_lab
from tests.contract.versions import LAB_RULES, SOURCES, git_name, names_of, texts_of
from tests.support_runtime import cache_root

TODAY = "FLEET_CONTRACT"
SUPPORT = "fastrpc-support"
SHELLS = "hexagon-dsp-binaries-qualcomm-iq9075-evk"
# Read on 2026-11-23, arm64; the suite is what a board of that release has.
PINNED = {
    "trixie-backports": {
        SUPPORT: "3beabcb39acdb0f8e6982ea6245d256b2b4cd657198f9161326c986e20e43442",
        "libfastrpc1": "35df085e1abb15abfba103c9947d86a686fb530c3d383a7f5e10834d51a1df26",
        "libfastrpc-dev": "81a98702d2de6ace61ee9443832e334ca98f5ecf7bd05d83c150be31a302ce85",
    },
    "sid": {
        SUPPORT: "8199043f4456ddd419d747de157162facba23ade9094a782f18925f2d3412318",
        "libfastrpc1": "6278e21ec7b4f4358bfba16a61512ff0bb06e95b4ef900acb9f2e96e03772a40",
        "libfastrpc-dev": "28b16f1eba46c4f0fd01ff70976c4b5242d82275cb337c2ac2480a6d6f059403",
        SHELLS: "60bee3b37bb9661be15f6dc5986db272acfec95c3d8ca70ab453c83e13507bea",
    },
}
RULES = "/usr/lib/udev/rules.d/60-fastrpc.rules"
UNIT = "/usr/lib/systemd/system/cdsprpcd.service"
GROUP = "/usr/lib/sysusers.d/fastrpc.conf"


def lab(suite: str = "sid") -> dict[str, Package]:
    return {deb.name: of_lab(deb) for deb in debian(suite)}


def debs(suite: str, today: bool) -> list[Path]:
    """Raises OSError with apt's words when the archive has not got them, or is out of reach."""
    versions = dict.fromkeys(PINNED[suite], VERSIONS[suite]) | {SHELLS: SHELLS_VERSION}
    names = tuple(name if today else f"{name}={versions[name]}" for name in PINNED[suite])
    folder = cache_root() / "contract" / ("today" if today else VERSIONS[suite])
    with file_lock(cache_root() / "contract.lock", SECONDS):
        kept = sorted(folder.rglob("*.deb"))
        if today or len(kept) != len(names):
            kept = downloaded(folder, names, "contrib non-free-firmware", "arm64", suite)
    if not today:
        sums = {hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}
        assert sums == {*PINNED[suite].values()}, "not the packages that were pinned"
    return kept


def archive(suite: str, today: bool) -> dict[str, Package]:
    return {package.name: package for package in map(of_archive, debs(suite, today))}


def pinned(suite: str) -> list[Path]:
    """The files of the pinned packages; skips, with the reason, where they cannot be had."""
    try:
        return debs(suite, today=False)
    except OSError as error:
        pytest.skip(f"the pinned packages of Debian cannot be had: {error}")


def places_of_shells() -> list[str]:
    """Where the probe looks for shells of the DSP."""
    text = text_of("probe.sh")
    (line,) = [line for line in text.splitlines() if "/usr/share/hexagon-dsp/" in line]
    return re.findall(r'"\$R"([^\s;]+)', line)


def all_differences(real: dict[str, Package], ours: dict[str, Package]) -> list[str]:
    found = [
        line
        for name in (SUPPORT, "libfastrpc1", "libfastrpc-dev")
        for line in differences(real[name], ours[name])
    ]
    return found + of_table(real.values(), packagings()["debian"])


@pytest.mark.gate
@pytest.mark.parametrize("suite", PINNED)
def test_the_pinned_packages_are_as_the_table_and_the_lab_say(suite: str) -> None:
    check({package.name: package for package in map(of_archive, pinned(suite))}, suite)


@pytest.mark.gate
@pytest.mark.parametrize(
    ("version", "row", "number"), [("1.0.6", "debian", "1.0.6-1"), ("1.0.6", "upstream", "1.0.6"),
                                   ("1.0.4", "upstream", "1.0.4")]
)  # fmt: skip
def test_versions_that_are_gone_have_the_texts_of_their_sources(
    version: str, row: str, number: str
) -> None:
    every = {package.name: package for package in map(of_archive, pinned("trixie-backports"))}
    texts = texts_of(version, every[SUPPORT].files)
    assert names_of(version, texts) == SOURCES[version]
    every = {name: replace(package, version=number) for name, package in every.items()}
    every[SUPPORT] = replace(every[SUPPORT], files=texts)
    assert of_table(every.values(), packagings()[row]) == []


@pytest.mark.parametrize("name", LAB_RULES)
def test_the_rules_of_the_lab_are_those_of_their_source(name: str) -> None:
    text = (files("fleet.lab") / "rules" / f"{name}.rules").read_text("utf-8")
    head, text = text.splitlines(keepends=True)[:3], text.split("\n", 3)[3]
    assert git_name(text) == LAB_RULES[name]
    assert "Source: qualcomm/fastrpc" in head[1]


@pytest.mark.skipif(TODAY not in os.environ, reason="today's archive: make test-contract")
@pytest.mark.parametrize("suite", PINNED)
def test_the_packages_of_today_are_as_the_table_and_the_lab_say(suite: str) -> None:
    check(archive(suite, today=True), suite)


def check(real: dict[str, Package], suite: str) -> None:
    assert all_differences(real, lab(suite)) == []
    for package in (real[name] for name in real if name == SHELLS):
        assert shells(package, places_of_shells()) == []
        models = {model for soc in load("socs")["socs"] for model in soc.get("models", ())}
        assert machines(package) <= models


def changed(name: str, **values: object) -> Callable[[dict[str, Package]], None]:
    """A package of another archive: fields in the place of those that are there."""

    def change(packages: dict[str, Package]) -> None:
        packages[name] = replace(packages[name], **values)  # type: ignore[arg-type]

    return change


def text(path: str, old: str, new: str) -> Callable[[dict[str, Package]], None]:
    """Another word in a rule, a unit or the group of fastrpc-support; all of it with old ""."""

    def change(packages: dict[str, Package]) -> None:
        there = packages[SUPPORT].files.get(path, "")
        assert old in there, f"{path} has no {old}"
        files = {**packages[SUPPORT].files, path: there.replace(old, new) if old else new}
        packages[SUPPORT] = replace(packages[SUPPORT], files=files)

    return change


def moved(name: str, old: str, new: str | None) -> Callable[[dict[str, Package]], None]:
    """A file by another name, or gone."""

    def change(packages: dict[str, Package]) -> None:
        files = dict(packages[name].files)
        body = files.pop(old)
        packages[name] = replace(packages[name], files=files | ({new: body} if new else {}))

    return change


DEPENDS = f"acl, libfastrpc1 (= {VERSIONS['sid']})"
ADD = 'ACTION=="add", '
SEEDED = {
    "ACTION dropped": (text(RULES, ADD, ""), 'here ACTION=="add"'),
    "another event": (text(RULES, '"add"', '"change"'), "rules: there False"),
    "another group": (text(RULES, 'GROUP="fastrpc"', 'GROUP="render"'), "group: there render"),
    "another mode": (text(RULES, '"0640"', '"0660"'), "0660"),
    "a secure node opened": (
        text(
            RULES,
            '"fastrpc-cdsp-secure", ',
            '"fastrpc-cdsp-secure", GROUP="fastrpc", MODE="0660", ',
        ),
        "fastrpc-cdsp-secure",
    ),
    "no access list for the heap": (text(RULES, "setfacl", "true"), "heap: there False, here True"),
    "another file name": (moved(SUPPORT, RULES, RULES.replace("60-", "71-")), "71-fastrpc.rules"),
    "a rule file less": (
        moved(SUPPORT, RULES.replace("60-fastrpc", "59-fastrpc-remoteproc"), None),
        "59-fastrpc-remoteproc.rules, there not",
    ),
    "a unit enabled": (
        text(UNIT, "[Service]", "[Install]\nWantedBy=multi-user.target\n[Service]"),
        "[Install]WantedBy=multi-user.target",
    ),
    "a unit enabled by the postinst": (
        changed(SUPPORT, postinst="deb-systemd-helper enable 'cdsprpcd.service'"),
        "deb-systemd-helper enable",
    ),
    "no event in the postinst": (changed(SUPPORT, postinst=""), "postinst: here trigger"),
    "another unit": (moved(SUPPORT, UNIT, UNIT.replace("cdsp", "npu")), "unit: there"),
    "another program in a unit": (
        text(UNIT, "/usr/sbin/", "/usr/bin/"),
        "ExecStart=/usr/bin/cdsprpcd",
    ),
    "another group of sysusers": (text(GROUP, "g fastrpc", "g npu"), "sysusers: there ['npu']"),
    "a user beside the group": (text(GROUP, "g fastrpc", "u fastrpc"), "u fastrpc"),
    "a dependency less": (
        changed(SUPPORT, relations={"Depends": DEPENDS.removeprefix("acl, ")}),
        "Depends: here acl, there not",
    ),
    "a dependency more": (
        changed(SUPPORT, relations={"Depends": f"{DEPENDS}, linux-firmware"}),
        "Depends: there linux-firmware",
    ),
    "a conflict": (
        changed(SUPPORT, relations={"Conflicts": "hexagonrpcd"}),
        "Conflicts: there hexagonrpcd",
    ),
    "nothing recommended": (
        changed(SUPPORT, relations={"Depends": DEPENDS}),
        "Recommends: here hexagon-dsp-binaries",
    ),
    "another version": (changed(SUPPORT, version="1.0.9-1"), "version: there 1.0.9-1"),
    "the library by another name": (
        moved("libfastrpc1", "/usr/lib/TRIPLE/libcdsprpc.so.1", "/usr/lib/TRIPLE/libcdsprpc.so.2"),
        "libcdsprpc.so.2",
    ),
    "a link to another file": (
        changed("libfastrpc-dev", files={"/usr/lib/TRIPLE/libcdsprpc.so": "libcdsprpc.so.2"}),
        "libcdsprpc.so: there libcdsprpc.so.2",
    ),
}


def test_no_difference_is_found_where_none_is() -> None:
    assert all_differences(lab(), lab()) == []


@pytest.mark.parametrize("seed", SEEDED)
def test_a_seeded_difference_is_found(seed: str) -> None:
    change, said = SEEDED[seed]
    real = lab()
    change(real)
    found = all_differences(real, lab())
    assert any(said in line for line in found), found


@pytest.mark.parametrize("path", ["/usr/share/hexagon-dsp/x/dsp/cdsp", "/opt/a/b/c/dsp/cdsp"])
def test_a_shell_where_we_do_not_look_is_found(path: str) -> None:
    package = Package(SHELLS, "1", {}, {f"{path}/fastrpc_shell_unsigned_3": ""})
    assert shells(package, places_of_shells()) == [f"{SHELLS} shells: there {path}"]


def test_a_package_without_shells_is_found() -> None:
    assert shells(Package(SHELLS, "1", {}, {}), places_of_shells())
