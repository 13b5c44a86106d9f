"""Workstation and workers speak in pickles: the same fleet and the same Python, or nothing."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from typing import Any

from fleet.model.errors import InputError, UnreachableError
from fleet.model.extras import source
from fleet.model.version import VERSION


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
            wrong.append(f"{address} has no fleet")
        elif isinstance(answer, Exception):
            wrong.append(f"{address} cannot say its version ({type(answer).__name__}: {answer})")
        elif (answer["fleet"], answer["python"]) != (VERSION, python):
            name = answer["worker"]
            wrong.append(f"{name} has fleet {answer['fleet']} on Python {answer['python']}")
        else:
            machines[address] = answer["machine"]
    if wrong:
        more = f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise InputError(
            f"workers do not match fleet {VERSION} on Python {python} here: "
            f"{'; '.join(wrong[:3])}{more}",
            hint=f"on the workers, with Python {python}: pip install {shlex.join(source('dask'))} "
            "(or a copy of that), then start them again",
        )
    return machines
