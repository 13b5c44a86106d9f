"""A service on a board behind a real sshd: the real libGenie, the tiny model, a tunnel."""

from __future__ import annotations

import os
import signal
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest


from .conftest import Service

pytestmark = pytest.mark.qairt


def test_it_answers(served: Service) -> None:
    with served.client() as client:
        said = client.post("/generate", json={"prompt": "What is fleet?"}).json()
    assert said["text"].startswith("fleet puts a compiled model")
