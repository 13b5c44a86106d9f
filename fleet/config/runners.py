"""Properties of the runners that playbooks need. This package may not import the runners.

`python -m fleet.runners.registry` generates `fleet/data/runners.json` from their classes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fleet.data import shipped_text

GROUP = "fleet.runners"  # the entry points with which other packages add runners
TABLE = "runners.json"


@dataclass(frozen=True)
class RunnerFacts:
    """Members of a runner's class, described in `fleet.runners.Defaults`."""

    default_for: tuple[str, ...] = ()
    needs_prompt: bool = False
    instead_of_prompt: tuple[str, ...] = ()

    def lacks_prompt(self, options: Mapping[str, Any]) -> bool:
        """Return True if a run with these options must have a prompt."""
        return self.needs_prompt and not set(self.instead_of_prompt) & options.keys()


def _facts(row: Mapping[str, Any]) -> RunnerFacts:
    return RunnerFacts(
        tuple(row["default_for"]), row["needs_prompt"], tuple(row["instead_of_prompt"])
    )


OWN_RUNNERS = {name: _facts(row) for name, row in json.loads(shipped_text(TABLE)).items()}
# The default runner by kind of bundle; `runtime` is a playbook without a bundle.
DEFAULT_RUNNERS: dict[str, str] = {
    kind: name for name, facts in OWN_RUNNERS.items() for kind in facts.default_for
} | {"runtime": "runtime"}


def known_runners() -> list[str]:
    """Return the names of all runners, those of other packages last."""
    return [*OWN_RUNNERS, *(entry.name for entry in entry_points(group=GROUP))]


def default_runner(
    kind: str, bundle: Path, options: Mapping[str, Any] = MappingProxyType({})
) -> str:
    """Return the runner for a playbook without `runner:`.

    A folder with genai_config.json generates text as a whole, unless `options` name its models.
    """
    if kind == "ort" and not options and (bundle / "genai_config.json").is_file():
        return "genai"
    return DEFAULT_RUNNERS[kind]


def facts_of_runner(name: str) -> RunnerFacts:
    """Return the properties of a runner; the defaults if its package cannot be loaded."""
    if name in OWN_RUNNERS:
        return OWN_RUNNERS[name]
    for entry in entry_points(group=GROUP, name=name):
        with suppress(Exception):  # the plan reports the package and the reason
            runner = entry.load()
            return RunnerFacts(
                needs_prompt=bool(getattr(runner, "needs_prompt", False)),
                instead_of_prompt=tuple(getattr(runner, "instead_of_prompt", ())),
            )
    return RunnerFacts()
