"""Debian's packages of FastRPC against the table and the lab that stand for them.

The pinned ones are in tests/contract/texts; `make test-contract` reports what Debian has today.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files

import pytest

from fleet.lab.debs import VERSIONS
from fleet.ops.system.packaging import packagings
from tests.contract import today
from tests.contract.compare import of_table, shells
from tests.contract.package import Package
from tests.contract.pinned import FOLDER, SHELLS, SUITES, SUPPORT, models, pinned
from tests.contract.today import against_ours, all_differences, lab, places_of_shells
from tests.contract.versions import LAB_RULES, SOURCES, git_name, names_of, texts_of

RULES = "/usr/lib/udev/rules.d/60-fastrpc.rules"
UNIT = "/usr/lib/systemd/system/cdsprpcd.service"
GROUP = "/usr/lib/sysusers.d/fastrpc.conf"


@pytest.mark.parametrize("suite", SUITES)
def test_the_pinned_packages_are_as_the_table_and_the_lab_say(suite: str) -> None:
    assert against_ours(pinned(suite), suite) == []


@pytest.mark.parametrize(
    ("version", "row", "number"), [("1.0.6", "debian", "1.0.6-1"), ("1.0.6", "upstream", "1.0.6"),
                                   ("1.0.4", "upstream", "1.0.4")]
)  # fmt: skip
def test_versions_that_are_gone_have_the_texts_of_their_sources(
    version: str, row: str, number: str
) -> None:
    every = pinned("trixie-backports")
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


def test_a_file_of_pinned_packages_keeps_no_text_that_is_not_free() -> None:
    (shells,) = [one for one in pinned("sid").values() if one.name == SHELLS]
    kept = {path: text for path, text in shells.files.items() if text and "/dsp/" not in path}
    assert kept == {path: models(text) for path, text in kept.items()}
    assert "Redistributions of source code" in (FOLDER / "LICENSE").read_text("utf-8")


def test_the_report_names_what_the_archive_has_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that Debian replaced is a line of the report, and ends nothing."""
    change, said = SEEDED["another version"]
    real = lab()
    change(real)
    monkeypatch.setattr(today, "archive", lambda suite: real)
    assert any(said in line for line in today.report("sid"))
    monkeypatch.setattr(today, "archive", lab)
    assert today.report("sid") == ["sid: fastrpc-support 1.0.8-1, no difference"]

    def unreachable(suite: str) -> dict[str, Package]:
        raise OSError("apt-get update: no network")

    monkeypatch.setattr(today, "archive", unreachable)
    assert today.report("sid") == ["sid: the archive cannot be read: apt-get update: no network"]


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
