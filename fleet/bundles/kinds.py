"""A guess at the kind of a folder without a Genie configuration, for a useful error message."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

from fleet.model.bundle import KINDS
from fleet.model.errors import BundleError

CONFIG = "genie_config.json"
_SHOWN = 12


def guess(names: list[str]) -> tuple[str, str] | None:
    """Return the kind that fits the file names, and a description of the folder, or None."""
    for kind in KINDS.values():
        for pattern, what in kind.marks:
            if any(fnmatchcase(name, pattern) for name in names):
                return kind.name, what
    return None


def not_supported(root: Path, names: list[str], nodes: dict[str, str]) -> BundleError:
    """Return the error for a folder without a Genie dialog.

    `nodes` are the other configurations of Genie with the section of each. They belong to the nodes
    of a pipeline, or to an embedding model alone.
    """
    if set(nodes.values()) == {"embedding"}:
        return BundleError(
            f"the folder {root} has no Genie dialog, only an embedding model ({', '.join(nodes)}): "
            "genie-t2e-run takes it, genie-t2t-run does not",
            hint=f"start genie-t2e-run with `run: {{runner: exec}}` and bundle: {{path: {root.name}"
            ", kind: files}",
        )
    if nodes:
        return BundleError(
            f"the folder {root} has no Genie dialog and no genie-app script, only "
            f"configurations of a pipeline's nodes: {', '.join(nodes)}",
            hint="copy the genie-app script of the model into the folder, under the name "
            "genie-app-script.txt",
        )
    have = ", ".join(names[:_SHOWN]) or "nothing"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    name, what = guess(names) or ("", "")
    looks = f"; the folder looks like {what}" if what else ""
    return BundleError(
        f"the folder {root} has no genie_config.json and no other JSON file with a section "
        f"`dialog` (only: {have}{more}){looks}",
        hint=f"set the kind in the playbook: bundle: {{path: {root.name}, kind: {name}}}"
        if name
        else ("give the path of the folder that contains genie_config.json"),
    )
