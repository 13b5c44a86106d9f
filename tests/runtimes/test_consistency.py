from __future__ import annotations

from pathlib import Path

import pytest

from fleet.model.errors import RuntimeStoreError
from fleet.model.runtime import Library
from fleet.runtimes.scan import build_of, check_consistent, require_consistent
from fleet.runtimes.store import RuntimeStore
from tests.runtimes.fakes import BUILD, OTHER
from tests.support_runtime import ARM, NEW, OLD, cached_runtime


def library(path: str, build: str | None = None, aisw: str | None = None) -> Library:
    return Library(path, 1, "0" * 64, "aarch64", None, build, aisw)


def test_one_build_has_no_findings() -> None:
    libraries = [
        library("lib/t/libQnnHtp.so", BUILD, "2.51.0"),
        library("lib/t/libGenie.so", None, "2.51.0"),
        library("lib/t/libQnnSystem.so"),
    ]
    assert check_consistent(libraries) == []


def test_each_other_build_is_a_finding_against_the_backend() -> None:
    libraries = [
        library("lib/t/libHtpPrepare.so", OTHER),
        library("lib/t/libGenie.so", None, "2.50.40"),
        library("lib/t/libQnnHtp.so", BUILD),
    ]
    first, second = check_consistent(libraries)
    assert (first.have, first.need, first.severity) == (OTHER, BUILD, "refuse")
    assert (
        first.message
        == f"lib/t/libHtpPrepare.so is from QAIRT {OTHER}, but lib/t/libQnnHtp.so is from {BUILD}"
    )
    assert (second.have, second.need) == ("2.50.40", "2.51.0")


def test_a_file_that_takes_no_part_in_a_run_only_warns() -> None:
    libraries = [library("lib/t/libQnnGpu.so", OTHER), library("lib/t/libQnnHtp.so", BUILD)]
    assert [item.severity for item in check_consistent(libraries)] == ["warn"]
    require_consistent(libraries, "sdk")
    assert build_of([libraries[0], library("lib/t/libQnnHtpV73Stub.so", BUILD)]) != libraries[0]


def test_nothing_is_derived_from_nothing() -> None:
    assert check_consistent([library("lib/t/libQnnSystem.so"), library("libx.so")]) == []
    assert build_of([library("lib/t/libGenie.so", None, "2.51.0")]) is None


@pytest.mark.qairt
@pytest.mark.parametrize("odd", ["libQnnHtpV73Stub.so", "libGenie.so", "libQnnHtp.so"])
def test_real_files_of_two_releases_are_refused(
    tmp_path: Path, store: RuntimeStore, odd: str
) -> None:
    """Skel of 2.51.0 with a stub, backend or libGenie of 2.50.40, as people mix them."""
    new, old = cached_runtime(NEW, ARM), cached_runtime(OLD, ARM)
    sdk = tmp_path / "sdk"
    for name in ("libQnnHtp.so", "libQnnHtpV73Stub.so", "libGenie.so"):
        source = (old if name == odd else new).root / "lib" / ARM / name
        place = sdk / "lib" / ARM / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(source)
    skel = "lib/hexagon-v73/unsigned/libQnnHtpV73Skel.so"
    (sdk / skel).parent.mkdir(parents=True)
    (sdk / skel).symlink_to(new.root / skel)
    with pytest.raises(RuntimeStoreError) as caught:
        store.add(sdk)
    text = caught.value.message
    assert odd in text
    assert new.build_id in text
    assert (old.version if odd == "libGenie.so" else old.build_id) in text
    assert "extract the SDK again" in caught.value.hint
    assert store.list() == ()
    assert [path.name for path in store.root.glob("*")] == []
