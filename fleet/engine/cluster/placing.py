"""Which workers may reach a board: by its label `site`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.model.errors import InputError
from fleet.model.inventory import Host

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
    found = [one for one in places if one.serves(site)]
    if not found:
        have = sorted({site for one in places for site in (*one.sites, one.name)})
        raise InputError(
            f"no worker of the cluster serves site '{site}'; workers and sites: {', '.join(have)}",
            hint=f"there: dask worker SCHEDULER:PORT --name {site}-1 --nthreads 32",
        )
    return found
