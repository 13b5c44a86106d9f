"""A lab board made from the archive of a selftest, which contains what the device reported.

The archive is not trusted. It is read in memory and never unpacked, and only values in a known form
go into the profile.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from fleet.model.errors import LabError, reason

MOST_BYTES, MOST_MEMBERS = 64 << 20, 500  # of all members together
_NODE = re.compile(r"/dev/(fastrpc-[a-z0-9-]{1,30}|adsprpc-smd|dma_heap/[a-z0-9,_]{1,30})")
_KIND = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,40}")
_ODD = re.compile(r"[^\w .,()/+:@~-]")  # a version in Debian may contain a ~
_MOST = 100  # zones, properties, or words of a list
_PROPERTY = re.compile(r"^\[(ro\.[\w.]{1,80})\]: \[([^\]\n]{0,200})\]$", re.MULTILINE)
_FASTRPC = re.compile(r"fastrpc|cdsprpc|hexagonrpc")
_OWN = {"ro.product.cpu.abilist", "ro.serialno", "ro.boot.serialno"}
_HINT = "give the .tar.gz that `fleet selftest` wrote, or copy it again"


def recorded(archive: Path, device: int = 1) -> tuple[str, str]:
    """Return the profile as YAML for `fleet lab up`, and the facts that fleet's tables lack as
    text.

    `device` counts the devices of the archive from 1. Raises LabError for any other archive: paths
    that lead outside, links, too many or too large members, no facts.
    """
    texts = _texts(archive)
    folder = f"selftest/device-{device}"
    try:
        facts = json.loads(texts[f"{folder}/raw/facts.json"])
        climbed = json.loads(texts[f"{folder}/selftest.json"])
        properties = dict(_PROPERTY.findall(texts.get(f"{folder}/raw/getprop.txt", "")))
        row = _phone(facts, properties) if facts["android"] else _board(facts)
        name = _plain(facts["soc"]["chip"] or "unknown-soc").lower()
        lacking = "\n".join(_lacking(facts, climbed, texts.get(f"{folder}/raw/packages.txt", "")))
    except KeyError as error:
        raise LabError(
            f"{archive} is not an archive of a self-test: the file {error.args[0]} is missing",
            hint=_HINT,
        ) from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise LabError(
            f"{archive} is not an archive of a self-test, or is damaged: {reason(error)}",
            hint=_HINT,
        ) from error
    head = f"# Recorded by a selftest of fleet {_plain(climbed.get('fleet'))}.\n"
    return head + yaml.safe_dump({f"recorded-{name}": row}, sort_keys=False), lacking


def _texts(archive: Path) -> dict[str, str]:
    try:
        with gzip.open(archive) as stream:
            data = stream.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise LabError(
                f"{archive} is not an archive of a self-test: the archive contains more than "
                f"{MOST_BYTES >> 20} MiB",
                hint=_HINT,
            )
        texts: dict[str, str] = {}
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for info in tar:
                path = PurePosixPath(info.name)
                if not info.isreg() or path.is_absolute() or ".." in path.parts:
                    raise LabError(
                        f"{archive} is not an archive of a self-test: it contains "
                        f"{info.name!r}, which is not a plain file",
                        hint=_HINT,
                    )
                if len(texts) >= MOST_MEMBERS:
                    raise LabError(
                        f"{archive} is not an archive of a self-test: the archive contains more "
                        f"than {MOST_MEMBERS} files",
                        hint=_HINT,
                    )
                member = tar.extractfile(info)
                texts[info.name] = member.read().decode("utf-8", "replace") if member else ""
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise LabError(
            f"fleet cannot read the archive {archive}: {reason(error)}", hint=_HINT
        ) from error
    return texts


def _plain(value: object) -> str:
    return _ODD.sub("", str(value or ""))[:120]


def _board(facts: Mapping[str, Any]) -> dict[str, Any]:
    soc = facts["soc"]
    system = {
        "PRETTY_NAME": facts["os_name"],
        "ID": facts["os_id"],
        "VERSION_ID": facts["os_version"],
    }
    nodes = [node for node in facts["nodes"] if node["exists"] and _NODE.fullmatch(node["path"])]
    first: dict[str, Any] = next((node for node in nodes if "rpc" in node["path"]), {})
    group = "root" if first.get("group") == "root" else "fastrpc"
    mode = str(first.get("mode") or "660")
    row = {
        "soc0": _soc0(soc),
        "compatible": [_plain(text) for text in soc["compatible"][:_MOST]],
        "model": _plain(soc["model"]),
        "remoteproc": {
            kind: _plain(state) for kind, state in facts["remoteproc"] if _KIND.fullmatch(kind)
        },
        "thermal": _thermal(facts),
        "nodes": [node["path"].removeprefix("/dev/") for node in nodes],
        "node": f"{mode if re.fullmatch('[0-7]{3,4}', mode) else '660'} root:{group}",
        "os_release": {key: _plain(value) for key, value in system.items() if value},
    }
    if not facts["libcdsprpc"]:
        row |= {"tree": "bare", "sudo": "password"}
    return row


def _soc0(soc: Mapping[str, Any]) -> dict[str, str]:
    number = soc["kernel_soc_id"]
    rest = {key: _plain(soc[key]) for key in ("machine", "family", "revision") if soc[key]}
    return ({"soc_id": str(int(number))} if number is not None else {}) | rest


def _thermal(facts: Mapping[str, Any]) -> dict[str, int]:
    zones = facts["thermal"][:_MOST]
    return {_plain(z["type"]): int(z["celsius"] * 1000) for z in zones if z["celsius"] is not None}


def _phone(facts: Mapping[str, Any], properties: Mapping[str, str]) -> dict[str, Any]:
    kept = list(properties.items())[:_MOST]
    return {
        "properties": {key: _plain(value) for key, value in kept if key not in _OWN},
        "soc0": _soc0(facts["soc"]),
        "selinux": _plain(facts["android"]["selinux"]) or "Enforcing",
        "source": "the archive of a selftest",
    }


def _lacking(facts: Mapping[str, Any], climbed: Mapping[str, Any], packages: str) -> Iterator[str]:
    """Yield the lines of a patch to the tables, for a person to review."""
    soc = facts["soc"]
    if soc["chip"] is None:
        yield "fleet/data/socs.yaml, a row:"
        yield "- chip: NAME\n  marketing: NAME\n  soc_model: null\n  arch: null\n  vtcm_mb: null"
        yield f"  kernel_soc_ids: [{_plain(soc['kernel_soc_id'])}]"
        yield f"  compatible: [[{_shown(soc['compatible'])}]]"
        yield "  sources: [selftest]\n  confidence: likely"
    rpc = [line for line in packages.splitlines() if _FASTRPC.search(line)]
    if rpc:
        yield "fleet/data/fastrpc.yaml, versions that were seen:"
        yield from (f"  {_plain(line)}" for line in rpc[:_MOST])
    fallen = [row for row in climbed["assumptions"] if row["status"] == "does not hold"]
    if fallen:
        yield "fleet/data/assumptions.yaml, what does not hold here:"
        yield from (f"  {_plain(row['id'])} {_plain(row['symbol'])}" for row in fallen)


def _shown(texts: list[str]) -> str:
    return ", ".join(f'"{_plain(text)}"' for text in texts)
