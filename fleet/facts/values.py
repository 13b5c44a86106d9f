"""Values of the probe's output, group by group. What makes no sense is unknown; never raises."""

from __future__ import annotations

import re

from fleet.model.facts import DeviceNode, Disk, Soc, ThermalZone, Tools, User

Values = dict[str, list[str]]

# More digits than 2^63 has are no measure of anything on a device.
_WHOLE = re.compile(r"[0-9]{1,18}")
_SECONDS = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")
_MILLIDEGREES = re.compile(r"-?[0-9]{1,9}")
_ID = re.compile(r"([0-9]+)(?:\(([^()]*)\))?")
_BITS = "rwxrwxrwx"
_PROGRAMS = ("timeout", "dd_fullblock", "find_printf", "sync_file", "tar", "cpio", "gzip")


def value_of(found: Values, key: str) -> str | None:
    """The first value of a key, stripped; None when it is absent or empty."""
    return found.get(key, [""])[0].strip() or None


def whole(found: Values, key: str) -> int | None:
    """A number of digits only."""
    text = value_of(found, key) or ""
    return int(text) if _WHOLE.fullmatch(text) else None


def kilobytes(found: Values, key: str) -> int | None:
    """A number of KiB as bytes."""
    number = whole(found, key)
    return None if number is None else number * 1024


def seconds(found: Values, key: str) -> float | None:
    """The first word as seconds; /proc/uptime has two."""
    text = (value_of(found, key) or "").split(" ")[0]
    return float(text) if _SECONDS.fullmatch(text) else None


def pair(value: str) -> tuple[str, str]:
    """`name<TAB>rest`."""
    name, _, rest = value.partition("\t")
    return name, rest


def soc(found: Values) -> Soc:
    """What the kernel and the device tree say; the table is not asked here."""
    compatible = (value_of(found, "dt_compatible") or "").split("\x1e")
    model = (value_of(found, "dt_model") or "").replace("\x1e", "").strip()
    return Soc(
        kernel_soc_id=whole(found, "soc_id"),
        machine=value_of(found, "soc_machine"),
        family=value_of(found, "soc_family"),
        revision=value_of(found, "soc_revision"),
        covered="soc_covered" in found,
        compatible=tuple(text for text in compatible if text),
        model=model or None,
    )


def user(found: Values) -> User:
    """The deploy user, from the lines of `id`, or from numbers where `id` gave up."""
    live = value_of(found, "id") or ""
    uid, name = _first(live, "uid")
    groups = _groups(live)
    if not live and (numbers := (value_of(found, "ids") or "").split()):
        uid = numbers[0]
        listed = (value.partition(" ") for value in found.get("group", ()))
        names = {number: name for number, _, name in listed}
        groups = tuple(dict.fromkeys(names.get(number) or number for number in numbers[1:]))
    return User(
        name=name or None,
        uid=int(uid) if _WHOLE.fullmatch(uid) else None,
        home=value_of(found, "home"),
        groups_db=_groups(value_of(found, "id_db") or ""),
        groups_live=groups,
    )


def _first(text: str, key: str) -> tuple[str, str]:
    match = re.search(rf"(?:^| ){key}={_ID.pattern}", text)
    return (match[1], match[2] or "") if match else ("", "")


def _groups(text: str) -> tuple[str, ...]:
    """Names of `gid=4(adm) groups=4(adm),5555`, the primary one first; a number without a name."""
    gid, name = _first(text, "gid")
    _, _, listed = text.partition(" groups=")
    rest = [match[2] or match[1] for match in _ID.finditer(listed.partition(" context=")[0])]
    return tuple(dict.fromkeys(group for group in (name or gid, *rest) if group))


def nodes(found: Values) -> tuple[DeviceNode, ...]:
    """Device nodes with the mode of `stat` or `ls -l`, and how open() went of those listed."""
    opened = dict(pair(value) for value in found.get("open", ()))
    modes = _modes(value_of(found, "modes") or "")
    result = []
    for path in dict.fromkeys([*found.get("node", ()), *modes]):
        said = opened.get(path)
        mode, owner, group = modes.get(path, (None, None, None))
        result.append(
            DeviceNode(
                path=path,
                exists=path in modes or said not in {None, "", "ENOENT"},
                mode=mode,
                owner=owner,
                group=group,
                open_error=None if not said else said.replace("ok", ""),
            )
        )
    return tuple(result)


def _modes(text: str) -> dict[str, tuple[str | None, str, str]]:
    """`660 root fastrpc NAME` of stat, or `crw-rw---- 1 root fastrpc 10, 5 <date> NAME` of ls."""
    modes: dict[str, tuple[str | None, str, str]] = {}
    for words in (line.split() for line in text.split("\n")):
        if len(words) == 4:
            modes[f"/dev/{words[3]}"] = (words[0], words[1], words[2])
        elif len(words) > 5:
            modes[f"/dev/{words[-1]}"] = (_octal(words[0]), words[2], words[3])
    return modes


def _octal(text: str) -> str | None:
    """`crw-rw----` as 660; special bits are left out, no rule asks for them."""
    bits = text[1:10].replace("s", "x").replace("t", "x").replace("S", "-").replace("T", "-")
    if len(bits) != 9 or any(bit not in {"-", want} for bit, want in zip(bits, _BITS, strict=True)):
        return None
    return format(int("".join("01"[bit != "-"] for bit in bits), 2), "o")


def disk(found: Values) -> Disk:
    """Room at the nearest folder that exists."""
    writable = value_of(found, "disk_writable")
    recyclable = [int(size) for size in found.get("disk_spare_kb", ()) if _WHOLE.fullmatch(size)]
    return Disk(
        path=value_of(found, "base_dir") or "",
        mount=value_of(found, "disk_mount"),
        available_bytes=kilobytes(found, "disk_free_kb"),
        inodes=whole(found, "disk_inodes"),
        writable=None if writable is None else writable == "yes",
        recyclable_bytes=sum(recyclable) * 1024,
    )


def thermal(found: Values) -> tuple[ThermalZone, ...]:
    """Sensors; the kernel gives millidegrees."""
    zones = []
    for value in found.get("thermal", ()):
        name, kind, milli = [*value.split("\t"), "", ""][:3]
        celsius = int(milli) / 1000 if _MILLIDEGREES.fullmatch(milli) else None
        zones.append(ThermalZone(name, kind, celsius))
    return tuple(zones)


def tools(found: Values) -> Tools:
    """Programs that were found."""
    path, _, version = (value_of(found, "python3") or "").rpartition(" ")
    there = {name: name in found for name in _PROGRAMS}
    return Tools(
        **there,
        python3=path or None,
        python3_version=version or None,
        python3_whole=value_of(found, "python3_whole") != "no",
        python3_ctypes=value_of(found, "python3_ctypes") == "yes" if path else None,
        sha256=tuple((value_of(found, "sha256") or "").split()),
    )
