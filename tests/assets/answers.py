"""The questions that the tiny model knows, with their answers."""

from __future__ import annotations

import runpy
from pathlib import Path

_CORPUS = Path(__file__).parents[2] / "assets" / "build" / "corpus.py"


def known() -> dict[str, str]:
    """Ten questions; what the model says to each, word by word."""
    return {ways[0]: answer for ways, answer in runpy.run_path(str(_CORPUS))["ANSWERS"]}
