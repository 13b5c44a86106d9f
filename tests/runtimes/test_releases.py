from __future__ import annotations

import pytest

from fleet.data import load
from fleet.runtimes.releases import backend_api, qairt_of_wheel, release, wheel_for
from tests.support_runtime import ARM, NEW, OLD, cached_runtime


@pytest.mark.parametrize(
    ("version", "wheel"),
    [
        ("2.51.0", "2.7.0"),
        ("v2.51.0.260929181845_12345", "2.7.0"),
        ("2.50.40", "2.6.0"),
        ("2.48.40.260702", "2.4.0"),
        ("2.51.0.260101", None),
        ("2.45.0", None),
        ("2.50.0", None),
    ],
)
def test_wheel_for(version: str, wheel: str | None) -> None:
    assert wheel_for(version) == wheel


@pytest.mark.parametrize(
    ("version", "api"),
    [
        ("2.51.0", "5.51.0"),
        ("v2.51.0.260929181845", "5.51.0"),
        ("2.45.0.260326", "5.45.0"),
        ("2.39", "5.39.0"),
        ("3.1.0", None),
        ("latest", None),
        ("", None),
    ],
)
def test_backend_api(version: str, api: str | None) -> None:
    assert backend_api(version) == api


def test_the_table_agrees_with_itself() -> None:
    for row in load("qairt_releases")["releases"]:
        assert row["build_id"].startswith(row["qairt"] + ".")
        assert row["htp_backend_api"].split(".")[1] == row["qairt"].split(".")[1]
        assert wheel_for(row["qairt"]) == row["wheel"]
        assert qairt_of_wheel(row["wheel"]) == row["build_id"]
    assert release("2.52.0") is None


@pytest.mark.qairt
@pytest.mark.parametrize("version", [NEW, OLD])
def test_the_table_agrees_with_the_real_files(version: str) -> None:
    runtime = cached_runtime(version, ARM)
    row = release(version)
    assert row is not None
    assert runtime.build_id == row["build_id"]
    assert runtime.version == row["qairt"]
