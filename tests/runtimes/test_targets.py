from __future__ import annotations

import pytest

from fleet.model.errors import InputError
from fleet.runtimes.targets import default_target, known_targets, target_facts


@pytest.mark.parametrize(
    ("family", "machine", "target"),
    [
        ("linux", "aarch64", "aarch64-oe-linux-gcc11.2"),
        ("Linux", "arm64", "aarch64-oe-linux-gcc11.2"),
        ("linux", "x86_64", "x86_64-linux-clang"),
        ("android", "aarch64", "aarch64-android"),
        ("windows", "ARM64", "aarch64-windows-msvc"),
        ("linux", "riscv64", None),
        ("android", "x86_64", None),
        ("qnx", "aarch64", None),
    ],
)
def test_default_target(family: str, machine: str, target: str | None) -> None:
    assert default_target(family, machine) == target


def test_what_the_linux_builds_refuse() -> None:
    assert target_facts("aarch64-oe-linux-gcc11.2").refused_soc_models == (43,)
    assert target_facts("aarch64-oe-linux-gcc9.3").refused_soc_models == (43, 66)
    assert target_facts("aarch64-android").refused_soc_models == ()


def test_the_target_with_ubuntu_in_its_name_is_the_wrong_one() -> None:
    facts = target_facts("aarch64-ubuntu-gcc9.4")
    assert (facts.stub_archs, facts.genie) == (("v68",), False)
    assert "aarch64-oe-linux-gcc11.2" in facts.warning


def test_what_is_not_known_is_none() -> None:
    assert target_facts("aarch64-oe-linux-gcc11.2").min_glibc == "2.34"
    assert target_facts("aarch64-oe-linux-gcc9.3").min_glibc is None


def test_every_target_of_the_table_can_be_read() -> None:
    for name in known_targets():
        facts = target_facts(name)
        assert facts.name == name
        assert facts.kind in {"device", "emulator", "windows"}
        assert facts.genie or facts.warning, f"{name} has no Genie and no warning"


def test_an_unknown_target_names_the_known_ones() -> None:
    with pytest.raises(InputError) as caught:
        target_facts("aarch64-linux-gnu")
    assert "aarch64-oe-linux-gcc11.2" in caught.value.hint
