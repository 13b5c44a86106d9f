"""The workers of a cluster: which may reach a board, and which speak as this workstation does.

A board's workers are told by its label `site`. Workstation and workers speak in pickles: the same
fleet and the same Python, or nothing.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.model.errors import InputError, UnreachableError
from fleet.model.extras import source
from fleet.model.inventory import Host
from fleet.model.version import VERSION

LABEL = "site"


@dataclass(frozen=True)
class Place:
    """A worker process. `threads` boards at a time; `machine` tells where its blobs are."""

    address: str
    name: str
    threads: int
    sites: frozenset[str] = frozenset()
    machine: str = ""

    def serves(self, site: str) -> bool:
        """`--name SITE`, `--name SITE-1`, or `--resources "site-SITE=1"`; any for ""."""
        named = self.name == site or self.name.startswith(f"{site}-")
        return not site or named or site in self.sites


def place_of(address: str, info: Mapping[str, Any]) -> Place:
    """A worker as the scheduler describes it."""
    prefix = f"{LABEL}-"
    sites = (name.removeprefix(prefix) for name in info["resources"] if name.startswith(prefix))
    return Place(address, str(info["name"]), int(info["nthreads"]), frozenset(sites))


def site_of(host: Host) -> str:
    """The site of a board, "" for none."""
    return host.labels.get(LABEL, "")


def serving(site: str, places: Sequence[Place]) -> list[Place]:
    """The workers for a site. Raises InputError when there is none, with the command."""
    found = [place for place in places if place.serves(site)]
    if not found:
        have = sorted({site for place in places for site in (*place.sites, place.name)})
        raise InputError(
            f"no worker of the cluster serves site '{site}'; workers and sites: {', '.join(have)}",
            hint="start a worker at that site: "
            f"dask worker SCHEDULER:PORT --name {site}-1 --nthreads 32",
        )
    return found


def check_versions(said: Mapping[str, Any]) -> dict[str, str]:
    """Address → machine of the workers that answered `who`. Raises InputError naming the rest.

    A worker that is gone meanwhile is left out.
    """
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    wrong, machines = [], {}
    for address, answer in said.items():
        if isinstance(answer, UnreachableError):
            continue
        if isinstance(answer, ImportError):
            wrong.append(f"{address} does not have fleet installed")
        elif isinstance(answer, Exception):
            wrong.append(
                f"{address} did not report its version ({type(answer).__name__}: {answer})"
            )
        elif (answer["fleet"], answer["python"]) != (VERSION, python):
            name = answer["worker"]
            wrong.append(f"{name} has fleet {answer['fleet']} on Python {answer['python']}")
        else:
            machines[address] = answer["machine"]
    if wrong:
        more = f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise InputError(
            f"all workers must have fleet {VERSION} on Python {python} like this workstation, "
            f"but: {'; '.join(wrong[:3])}{more}",
            hint=f"run on the workers, with Python {python}: pip install "
            f"{shlex.join(source('dask'))} "
            "(or a copy of that folder), then restart the workers",
        )
    return machines
