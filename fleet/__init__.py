"""fleet: deploy, run, profile and diagnose models on fleets of Qualcomm NPU devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleet.api import load

__all__ = ["__version__", "load"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:  # noqa: ANN401 - the signature of PEP 562
    """`fleet.load` on demand: the lower rooms import nothing of the engine."""
    if name == "load":
        from fleet.api import load  # noqa: PLC0415

        return load
    raise AttributeError(name)
