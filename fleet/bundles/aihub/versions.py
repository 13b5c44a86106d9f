"""The QAIRT that made a model: AI Hub's word, the word of the archive, and the record of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from fleet.bundles.found import VERSION_FILES, clean_version
from fleet.bundles.jsonfile import read_version
from fleet.model.errors import BundleError
from fleet.model.runtime import same_build

_RECORD = "tool-versions.yaml"


def qairt_of(
    metadata: Mapping[str, str], tools: Mapping[str, str]
) -> tuple[str | None, str, list[str]]:
    """QAIRT version, where that stands, and contradictions. None and "" when nobody says it.

    `metadata` is that of the model, `tools` the tool versions of the job's result by name.
    """
    said = {
        "model metadata QAIRT_SDK_VERSION": metadata.get("qairt_sdk_version"),
        "model metadata QNN_SDK_VERSION": metadata.get("qnn_sdk_version"),
    }
    for name, value in tools.items():
        bare = re.sub(r"[^a-z]", "", name.lower())
        if bare in {"qairt", "qnn", "qairtsdk", "qnnsdk"}:
            said[f"tool version {name} of the job"] = value
    known = {where: clean for where, text in said.items() if (clean := clean_version(text))}
    if not known:
        return None, "", []
    source, version = next(iter(known.items()))
    notes = [
        f"{source} says QAIRT {version}, {where} says {other}"
        for where, other in known.items()
        if not same_build(version, other)
    ]
    return version, source, notes


def record_version(folder: Path, version: str | None) -> list[str]:
    """Write tool-versions.yaml where no file of the bundle says its QAIRT; notes for people.

    A record that came in the archive stays as it is, also when AI Hub says otherwise.
    """
    for name, keys in VERSION_FILES:
        path = folder / name
        if not path.is_file():
            continue
        try:
            own = clean_version(read_version(path, *keys))
        except BundleError as error:
            return [f"fleet cannot read {name} of the archive: {error.message}"]
        if own and version and not same_build(own, version):
            return [f"{name} of the archive says QAIRT {own}, AI Hub says {version}"]
        if own or name == _RECORD:
            return []
    if version is None:
        return [
            (
                "fleet did not write tool-versions.yaml, because AI Hub does not say which "
                "QAIRT version made the model"
            )
        ]
    text = version if version.count(".") > 1 else f'"{version}"'  # 2.40 would become 2.4
    (folder / _RECORD).write_text(f"qairt: {text}\n", "utf-8")
    return []
