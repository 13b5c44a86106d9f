"""The facts that only Android has: properties, SELinux, battery, skels of the vendor."""

from __future__ import annotations

import re

from fleet.facts.values import Values, value_of
from fleet.model.facts import Android, Battery, ThermalZone

_PROPERTY = re.compile(r"^\[([^\]]+)\]: \[(.*)\]$", re.MULTILINE)
_FIELD = re.compile(r"^\s*([A-Za-z ]+?): (.*?)\s*$", re.MULTILINE)
_TEMPERATURE = re.compile(r"Temperature\{mValue=(-?[0-9]{1,4}(?:\.[0-9]+)?), [^}]*?mName=([^,}]+)")
_CHARGERS = ("AC powered", "USB powered", "Wireless powered", "Dock powered")
# BatteryManager.BATTERY_STATUS_*: https://developer.android.com/reference/android/os/BatteryManager
_STATUS = {"1": "unknown", "2": "charging", "3": "discharging", "4": "not charging", "5": "full"}


def android(values: Values) -> Android | None:
    """Return the Android facts, None for a device without Android."""
    text = value_of(values, "getprop")
    if text is None:
        return None
    properties = dict(_PROPERTY.findall(text))

    def first(*names: str) -> str | None:
        return next((properties[name] for name in names if properties.get(name)), None)

    abis = first("ro.product.cpu.abilist", "ro.product.cpu.abi") or ""
    sdk = first("ro.build.version.sdk") or ""
    return Android(
        release=first("ro.build.version.release"),
        sdk=int(sdk) if sdk.isascii() and sdk.isdigit() else None,
        security_patch=first("ro.build.version.security_patch"),
        fingerprint=first("ro.build.fingerprint"),
        build_type=first("ro.build.type"),
        abis=tuple(abi for abi in abis.split(",") if abi),
        manufacturer=first("ro.product.manufacturer", "ro.product.vendor.manufacturer"),
        model=first("ro.product.model", "ro.product.vendor.model"),
        device=first("ro.product.device", "ro.product.vendor.device"),
        soc_manufacturer=first("ro.soc.manufacturer"),
        soc_model=first("ro.soc.model", "ro.vendor.qti.soc_model"),
        platform=first("ro.board.platform"),
        serialno=first("ro.serialno", "ro.boot.serialno"),
        selinux=value_of(values, "selinux"),
        su="su" in values,
        vendor_skels=tuple(dict.fromkeys(values.get("vendor_skel", ()))),
        battery=_battery(value_of(values, "battery") or ""),
    )


def _battery(text: str) -> Battery:
    """Parse `dumpsys battery` (status as a number), or the files of sysfs (status as a word)."""
    fields = {key.strip(): value for key, value in _FIELD.findall(text)}
    status = fields.get("status", "")
    chargers = [fields[key] for key in _CHARGERS if key in fields]
    charging = "true" in chargers if chargers else None
    return Battery(
        percent=_number(fields.get("level") or fields.get("capacity")),
        status=_STATUS.get(status, status.lower()) or None,
        charger=charging,
        celsius=None
        if (t := _number(fields.get("temperature") or fields.get("temp"))) is None
        else t / 10,
    )


def _number(text: str | None) -> int | None:
    match = re.fullmatch(r"-?[0-9]{1,6}", text or "")
    return int(match[0]) if match else None


def service_zones(values: Values) -> tuple[ThermalZone, ...]:
    """Return the sensors in `dumpsys thermalservice`: name and degrees Celsius."""
    text = value_of(values, "thermalservice") or ""
    zones = {name: float(value) for value, name in _TEMPERATURE.findall(text)}
    return tuple(ThermalZone("thermalservice", name, value) for name, value in zones.items())
