"""What only Android says: properties, chip, battery, sensors; from text and from lab phones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.config.inventory import load_inventory
from fleet.facts.gather import check_identity, gather, source
from fleet.facts.parse import parse
from fleet.facts.soc import by_property, identify
from fleet.facts.view import summary
from fleet.lab import Lab, LabPhones
from fleet.lab.profiles import phone_profiles
from fleet.model.deadline import Deadline
from fleet.model.errors import IdentityError
from fleet.model.facts import Facts, Soc
from fleet.model.inventory import Host
from fleet.transport import transport_for

US = "\x1f"
PHONE = {
    "machine": "aarch64",
    "libc": "bionic",
    "base_dir": "/data/local/tmp/fleet",
    "getprop": US.join(
        [
            "[ro.build.fingerprint]: [samsung/e1quew/e1q:14/UP1A.231005.007/S921USQU1AXB7:user/k]",
            "[ro.build.version.release]: [14]",
            "[ro.build.version.sdk]: [34]",
            "[ro.product.cpu.abilist]: [arm64-v8a,armeabi-v7a]",
            "[ro.product.manufacturer]: [samsung]",
            "[ro.product.model]: [SM-S921U]",
            "[ro.board.platform]: [pineapple]",
            "[ro.soc.model]: [SM8650]",
            "[ro.serialno]: [R5CX10ABCDE]",
        ]
    ),
    "selinux": "Enforcing",
    "battery": US.join(
        [
            "Current Battery Service state:",
            "  AC powered: false",
            "  USB powered: true",
            "  status: 5",
            "  level: 100",
            "  temperature: 315",
        ]
    ),
    "thermalservice": US.join(
        [
            "\tTemperature{mValue=36.4, mType=0, mName=CPU0, mStatus=0}",
            "\tTemperature{mValue=31.0, mType=3, mName=SKIN, mStatus=0}",
            "\tTemperature{mValue=NaN, mType=3, mName=X, mStatus=0}",
        ]
    ),
    "vendor_skel": "/vendor/lib/rfsa/adsp/libQnnHtpV75Skel.so",
}


def seen(**changes: str | None) -> Facts:
    said = {**PHONE, **changes}
    lines = [f"{key}\t{value}" for key, value in said.items() if value is not None]
    return parse("\n".join(["fleet-facts 1", *lines, "end"]))


def test_a_phone() -> None:
    facts = seen()
    phone = facts.android
    assert phone is not None
    assert (phone.release, phone.sdk, phone.model) == ("14", 34, "SM-S921U")
    assert phone.abis == ("arm64-v8a", "armeabi-v7a")
    assert (phone.serialno, phone.selinux, phone.su) == ("R5CX10ABCDE", "Enforcing", False)
    assert phone.vendor_skels == ("/vendor/lib/rfsa/adsp/libQnnHtpV75Skel.so",)
    battery = phone.battery
    assert (battery.percent, battery.status, battery.charger, battery.celsius) == (
        100,
        "full",
        True,
        31.5,
    )
    assert [(zone.type, zone.celsius) for zone in facts.thermal] == [("CPU0", 36.4), ("SKIN", 31.0)]
    assert (facts.soc.chip, facts.soc.hexagon_arch, facts.soc.source) == (
        "SM8650",
        "v75",
        "android",
    )
    assert facts.os_family == "android"
    assert not facts.emulated
    assert ("identity", "R5CX10ABCDE") in summary(facts)


def test_battery_of_sysfs() -> None:
    facts = seen(battery=f"capacity: 55{US}status: Discharging{US}temp: 290")
    assert facts.android is not None
    battery = facts.android.battery
    assert (battery.percent, battery.status, battery.charger, battery.celsius) == (
        55,
        "discharging",
        None,
        29.0,
    )


def test_a_board_behind_adb_is_no_android() -> None:
    facts = seen(getprop=None, libc="glibc 2.39")
    assert facts.android is None
    assert facts.os_family == "linux"


@pytest.mark.parametrize(
    ("name", "chip"),
    [("SM8750P", "SM8750"), ("SM8650-AC", "SM8650"), ("sm8550", "SM8550"), ("CQ8725S", None),
     ("SM99", None), ("", None)],
)  # fmt: skip
def test_chips_by_property(name: str, chip: str | None) -> None:
    row = by_property(name)
    assert (row["chip"] if row else None) == chip


def test_nothing_is_derived_from_a_platform() -> None:
    soc = identify(Soc(), platform="kalama")
    assert (soc.chip, soc.hexagon_arch, soc.source) == (None, None, "unknown")
    assert "SM8550, QCS8550" in soc.conflict


def test_a_kernel_id_wins_and_a_contradiction_is_said() -> None:
    soc = identify(Soc(kernel_soc_id=557), android="SM8750")
    assert (soc.chip, soc.source) == ("SM8650", "soc_id")
    assert soc.conflict == "soc_id says SM8650, but ro.soc.model says SM8750"
    unlisted = identify(Soc(kernel_soc_id=99999), android="SM8550")
    assert (unlisted.chip, unlisted.source) == ("SM8550", "android")


def test_identity_is_ro_serialno_too() -> None:
    check_identity(Host("s24", transport="adb", identity="R5CX10ABCDE"), seen())
    with pytest.raises(IdentityError, match=r"ro\.serialno R5CX10ABCDE"):
        check_identity(Host("s24", transport="adb", identity="OTHER"), seen())


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_text_is_read(properties: str, battery: str) -> None:
    flat = str.maketrans({"\n": US, "\t": " "})
    seen(getprop=properties.translate(flat) or "x", battery=battery.translate(flat))


def test_the_board_s_probe_stays_short() -> None:
    assert len(source()) < 9000 - 500
    assert "getprop" not in source()
    assert source(android=True).endswith("put end\n")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made_up = {"unknown", "x86_64", "x86_64-python3"}
    names = [name for name in phone_profiles() if name not in made_up]
    root = tmp_path_factory.mktemp("lab")
    with Lab.up(
        root,
        count=0,
        phones=LabPhones(len(names), ",".join(names), "phone-emulator"),
        base_port=0,
    ) as one:
        yield one


CHIPS = {
    "sm8450": "v69",
    "sm8550": "v73",
    "sm8650": "v75",
    "sm8750": "v79",
    "sm8750p": "v79",
    "qcs8550": "v73",
    "qcs6490": "v68",
}


def test_every_recorded_phone_in_one_round_trip(lab: Lab) -> None:
    hosts = {one.name: one for one in load_inventory(lab.inventory).hosts}
    assert {one.profile for one in lab.phones} == set(CHIPS)
    for phone in lab.phones:
        link = transport_for(hosts[phone.name])
        link.open(Deadline(10))
        facts = gather(link, hosts[phone.name], Deadline(20))
        assert link.traffic.round_trips == 1
        short = gather(link, hosts[phone.name], Deadline(20), short=True)
        link.close()
        assert short.android is not None, "its serial number is compared before a push"
        assert short.android.serialno == phone.name.upper()
        for name in ("base_dir", "store", "machine", "lab", "boot_id", "emulated"):
            assert getattr(short, name) == getattr(facts, name), name
        for name in ("sha256", "dd_fullblock", "sync_file", "tar", "gzip"):
            assert getattr(short.tools, name) == getattr(facts.tools, name), name
        assert (short.nodes, short.thermal, short.android.battery.percent) == ((), (), None)
        assert facts.soc.hexagon_arch == CHIPS[phone.profile], phone.profile
        assert facts.emulated
        assert facts.machine == "aarch64"
        assert facts.android is not None
        assert facts.android.serialno == phone.name.upper()
        assert facts.android.battery.percent == 86
        assert facts.thermal
        assert facts.disk.writable
