"""Parsers of single values in the probe's output. Invalid values are unknown; nothing raises."""

from __future__ import annotations

import re

from fleet.model.facts import Android, Battery, DeviceNode, Disk, Soc, ThermalZone, Tools, User

Values = dict[str, list[str]]

# Numbers with more digits than 2^63 do not measure anything on a device.
_WHOLE = re.compile(r"[0-9]{1,18}")
_SECONDS = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")
_MILLIDEGREES = re.compile(r"-?[0-9]{1,9}")
_ID = re.compile(r"([0-9]+)(?:\(([^()]*)\))?")
_BITS = "rwxrwxrwx"
_PROGRAMS = ("timeout", "dd_fullblock", "find_printf", "sync_file", "tar", "cpio", "gzip")


def value_of(values: Values, key: str) -> str | None:
    """Return the first value of a key, stripped; None if it is absent or empty."""
    return values.get(key, [""])[0].strip() or None


def whole(values: Values, key: str) -> int | None:
    """Return a value as a number; None if it is absent or is not 1 to 18 digits."""
    text = value_of(values, key) or ""
    return int(text) if _WHOLE.fullmatch(text) else None


def kilobytes(values: Values, key: str) -> int | None:
    """Return a number of KiB in bytes; None if it is absent or invalid, as in `whole`."""
    number = whole(values, key)
    return None if number is None else number * 1024


def seconds(values: Values, key: str) -> float | None:
    """Return the first word of a value as seconds (/proc/uptime has two); None for no number."""
    text = (value_of(values, key) or "").split(" ")[0]
    return float(text) if _SECONDS.fullmatch(text) else None


def pair(value: str) -> tuple[str, str]:
    """Split `name<TAB>rest`."""
    name, _, rest = value.partition("\t")
    return name, rest


def soc(values: Values) -> Soc:
    """Return the chip as reported by the kernel and the device tree, without the table."""
    compatible = (value_of(values, "dt_compatible") or "").split("\x1e")
    model = (value_of(values, "dt_model") or "").replace("\x1e", "").strip()
    return Soc(
        kernel_soc_id=whole(values, "soc_id"),
        machine=value_of(values, "soc_machine"),
        family=value_of(values, "soc_family"),
        revision=value_of(values, "soc_revision"),
        covered="soc_covered" in values,
        compatible=tuple(text for text in compatible if text),
        model=model or None,
    )


def user(values: Values) -> User:
    """Return the deploy user, from the lines of `id`, or from numbers if `id` failed."""
    live = value_of(values, "id") or ""
    uid, name = _first(live, "uid")
    groups = _groups(live)
    if not live and (numbers := (value_of(values, "ids") or "").split()):
        uid = numbers[0]
        listed = (value.partition(" ") for value in values.get("group", ()))
        names = {number: name for number, _, name in listed}
        groups = tuple(dict.fromkeys(names.get(number) or number for number in numbers[1:]))
    return User(
        name=name or None,
        uid=int(uid) if _WHOLE.fullmatch(uid) else None,
        home=value_of(values, "home"),
        groups_db=_groups(value_of(values, "id_db") or ""),
        groups_live=groups,
    )


def _first(text: str, key: str) -> tuple[str, str]:
    match = re.search(rf"(?:^| ){key}={_ID.pattern}", text)
    return (match[1], match[2] or "") if match else ("", "")


def _groups(text: str) -> tuple[str, ...]:
    """Return the group names of `gid=4(adm) groups=4(adm),5555`, the primary group first.

    A group without a name is returned as its number.
    """
    gid, name = _first(text, "gid")
    _, _, listed = text.partition(" groups=")
    rest = [match[2] or match[1] for match in _ID.finditer(listed.partition(" context=")[0])]
    return tuple(dict.fromkeys(group for group in (name or gid, *rest) if group))


def nodes(values: Values) -> tuple[DeviceNode, ...]:
    """Return device nodes with the mode of `stat` or `ls -l` and the result of open()."""
    opened = dict(pair(value) for value in values.get("open", ()))
    modes = _modes(value_of(values, "modes") or "")
    result = []
    for path in dict.fromkeys([*values.get("node", ()), *modes]):
        opening = opened.get(path)
        mode, owner, group = modes.get(path, (None, None, None))
        result.append(
            DeviceNode(
                path=path,
                exists=path in modes or opening not in {None, "", "ENOENT"},
                mode=mode,
                owner=owner,
                group=group,
                open_error=None if not opening else opening.replace("ok", ""),
            )
        )
    return tuple(result)


def _modes(text: str) -> dict[str, tuple[str | None, str, str]]:
    """Parse `660 root fastrpc NAME` of stat, or `crw-rw---- 1 root fastrpc 10, 5 <date> NAME` of
    ls.
    """
    modes: dict[str, tuple[str | None, str, str]] = {}
    for words in (line.split() for line in text.split("\n")):
        if len(words) == 4:
            modes[f"/dev/{words[3]}"] = (words[0], words[1], words[2])
        elif len(words) > 5:
            modes[f"/dev/{words[-1]}"] = (_octal(words[0]), words[2], words[3])
    return modes


def _octal(text: str) -> str | None:
    """Return `crw-rw----` as 660 without special bits, which no rule needs."""
    bits = text[1:10].replace("s", "x").replace("t", "x").replace("S", "-").replace("T", "-")
    if len(bits) != 9 or any(bit not in {"-", want} for bit, want in zip(bits, _BITS, strict=True)):
        return None
    return format(int("".join("01"[bit != "-"] for bit in bits), 2), "o")


def disk(values: Values) -> Disk:
    """Return the disk space at the nearest existing folder."""
    writable = value_of(values, "disk_writable")
    recyclable = [int(size) for size in values.get("disk_spare_kb", ()) if _WHOLE.fullmatch(size)]
    return Disk(
        path=value_of(values, "base_dir") or "",
        mount=value_of(values, "disk_mount"),
        available_bytes=kilobytes(values, "disk_free_kb"),
        inodes=whole(values, "disk_inodes"),
        writable=None if writable is None else writable == "yes",
        recyclable_bytes=sum(recyclable) * 1024,
    )


def thermal(values: Values) -> tuple[ThermalZone, ...]:
    """Return the sensors; the kernel reports millidegrees."""
    zones = []
    for value in values.get("thermal", ()):
        name, kind, milli = [*value.split("\t"), "", ""][:3]
        celsius = int(milli) / 1000 if _MILLIDEGREES.fullmatch(milli) else None
        zones.append(ThermalZone(name, kind, celsius))
    return tuple(zones)


def tools(values: Values) -> Tools:
    """Return the programs on the device."""
    path, _, version = (value_of(values, "python3") or "").rpartition(" ")
    there = {name: name in values for name in _PROGRAMS}
    return Tools(
        **there,
        python3=path or None,
        python3_version=version or None,
        python3_whole=value_of(values, "python3_whole") != "no",
        python3_ctypes=value_of(values, "python3_ctypes") == "yes" if path else None,
        sha256=tuple((value_of(values, "sha256") or "").split()),
    )


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
