"""The workers of a cluster: those that may reach a board, and those with the right version.

The label `site` of a board selects its workers. Workstation and workers exchange pickles, so they
need the same fleet and the same Python.
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
    """A worker process for `threads` boards at a time.

    `machine` identifies the machine with its blobs.
    """

    address: str
    name: str
    threads: int
    sites: frozenset[str] = frozenset()
    machine: str = ""

    def serves(self, site: str) -> bool:
        """Return True if the worker serves a site; every worker serves "".

        A worker serves a site by `--name SITE`, `--name SITE-1` or `--resources "site-SITE=1"`.
        """
        named = self.name == site or self.name.startswith(f"{site}-")
        return not site or named or site in self.sites


def place_of(address: str, info: Mapping[str, Any]) -> Place:
    """Return the worker at `address` from `info`, the scheduler's entry for it."""
    prefix = f"{LABEL}-"
    sites = (name.removeprefix(prefix) for name in info["resources"] if name.startswith(prefix))
    return Place(address, str(info["name"]), int(info["nthreads"]), frozenset(sites))


def site_of(host: Host) -> str:
    """Return the site of a board, "" for none."""
    return host.labels.get(LABEL, "")


def serving(site: str, places: Sequence[Place]) -> list[Place]:
    """Return the workers for a site. Raises InputError with a command if there is none."""
    matches = [place for place in places if place.serves(site)]
    if not matches:
        have = sorted({site for place in places for site in (*place.sites, place.name)})
        raise InputError(
            f"no worker of the cluster serves site '{site}'; workers and sites: {', '.join(have)}",
            hint="start a worker at that site: "
            f"dask worker SCHEDULER:PORT --name {site}-1 --nthreads 32",
        )
    return matches


def check_versions(answers: Mapping[str, Any]) -> dict[str, str]:
    """Return address → machine of the workers that answered `who`.

    A worker that is gone meanwhile is left out. Raises InputError with the names of the workers
    that have another version.
    """
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    wrong, machines = [], {}
    for address, answer in answers.items():
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
