"""fleet: deploy, run, profile and diagnose models on fleets of Qualcomm NPU devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleet.model.version import VERSION

if TYPE_CHECKING:
    from fleet.api import diagnose, diagnose_log, load

__all__ = ["__version__", "diagnose", "diagnose_log", "load"]
__version__ = VERSION


def __getattr__(name: str) -> Any:  # noqa: ANN401 - the signature of PEP 562
    """The API on demand: the lower rooms import nothing of the engine."""
    if name in {"diagnose", "diagnose_log", "load"}:
        from fleet import api  # noqa: PLC0415

        return getattr(api, name)
    raise AttributeError(name)
