"""Rungs that no lab board can decide, on a bench of our own: what a real board would say."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleet.model.errors import (
    BundleError,
    DeviceError,
    HealthError,
    InputError,
    ProfileError,
    RunnerError,
    RuntimeStoreError,
    WorkstationError,
)
from fleet.model.facts import Facts, Soc, ThermalZone
from fleet.model.files import file_ref
from fleet.model.manifest import Manifest
from fleet.model.record import Measure, Metrics
from fleet.runners.base import Ended, Outcome
from fleet.selftest import judges
from fleet.selftest.bench import Bench, SessionWords
from fleet.selftest.climb import climb
from fleet.selftest.ladder import FELL, JUDGES, UNDECIDED, RungVerdict, Undecided, rungs

DATA = Path(__file__).parents[1] / "triage" / "data" / "qairt"
FACTS = Facts(soc=Soc(chip="QCS9075", soc_model=77, hexagon_arch="v73"), machine="aarch64")
CREATED = SessionWords([("backendCreate", 0, ""), ("deviceCreate", 0, "")], "", "")
REFUSED = SessionWords(
    [("deviceCreate", 14001, "")], "", (DATA / "arm64_b1_cdsprpc_nodev.log").read_text("utf-8")
)


class Stand(SimpleNamespace):
    """A bench whose device says what a test gives."""

    emulated, v73, version = Bench.emulated, Bench.v73, (2, 51, 0)

    def open_session(self, context: bytes = b"", **changes: str) -> SessionWords:
        self.asked = changes
        return self.said  # type: ignore[no-any-return]


def stand(**values: Any) -> Any:
    return Stand(**{"facts": FACTS, "said": CREATED, "genie": (None, None, "/r"), **values})


def test_every_rung_has_its_judge() -> None:
    for rung in rungs():
        assert (rung.id in JUDGES) == (not rung.checks and rung.never is None), rung.id


@pytest.mark.parametrize("rung", ["separator", "no-adsp-path"])
def test_what_must_be_refused(rung: str) -> None:
    bench = stand(said=REFUSED)
    assert JUDGES[rung](bench).holds, "the doctor has a name for these words"
    assert ":" in (bench.asked["ADSP_LIBRARY_PATH"] or ":")
    assert not JUDGES[rung](stand()).holds, "a device was created"
    unknown = SessionWords([("deviceCreate", 1, "")], "", "nothing that anybody knows")
    found = JUDGES[rung](stand(said=unknown))
    assert not found.holds
    assert "no cause that the doctor knows" in found.observed


def test_a_skel_of_another_build_differs_by_its_id_alone(tmp_path: Path) -> None:
    skel = tmp_path / "true.so"
    skel.write_bytes(b"\x7fELF v2.51.0.260929181845 end")
    work = tmp_path / "work"
    work.mkdir()
    brought: list[Manifest] = []

    def bring(manifest: Manifest) -> str:
        brought.append(manifest)
        return "/other"

    ref = file_ref(skel, "dsp/libQnnHtpV73Skel.so")
    base = (None, Manifest("g", (ref,)), "/r")
    bench = stand(said=REFUSED, genie=base, work=work, bring=bring)
    assert judges.other_skel(bench).holds
    assert bench.asked == {"ADSP_LIBRARY_PATH": "/other/dsp"}
    (sent,) = brought[0].files
    assert sent.name == ref.name
    assert sent.source.read_bytes() == b"\x7fELF v2.40.0.260929181845 end"


@pytest.mark.parametrize(
    ("status", "words", "holds"),
    [
        (0, b"Unit Test on the backend DSP: Passed.", True),
        (1, b"Unit Test on the backend DSP: Passed.", False),
        (0, b"Unit Test on the backend DSP: Failed.", False),
    ],
)
def test_the_validator_is_believed_by_its_words_and_its_status(
    tmp_path: Path, *, status: int, words: bytes, holds: bool
) -> None:
    names = ("bin/t/qnn-platform-validator", "lib/t/libPlatformValidatorShared.so")
    files = [SimpleNamespace(path=name, size=1, sha256="0" * 64) for name in names]
    started: list[Manifest] = []

    def start(manifest: Manifest, *_: object) -> Ended:
        started.append(manifest)
        return Ended(status, words)

    built = SimpleNamespace(target_for=lambda *_: "t")
    bench = stand(
        genie=(built, Manifest("g", ()), "/r"),
        runtime=SimpleNamespace(libraries=files, root=tmp_path),
        session=SimpleNamespace(host=None),
        bring=lambda _: "/v",
        start=start,
    )
    assert judges.validator(bench).holds is holds
    assert {item.executable: item.name for item in started[0].files} == {
        True: "bin/qnn-platform-validator",
        False: "lib/libPlatformValidatorShared.so",
    }
    bench.runtime = SimpleNamespace(libraries=files[:1], root=tmp_path)
    with pytest.raises(Undecided) as caught:
        judges.validator(bench)
    assert caught.value.reason == "no-program"


@pytest.mark.parametrize(
    ("rows", "holds"), [((), True), (("cdsprpcd\tLoadState=loaded ActiveState=active",), False)]
)
def test_a_daemon_that_runs_cannot_be_stopped_without_root(
    rows: tuple[str, ...], *, holds: bool
) -> None:
    bench = stand(sample=SimpleNamespace(lines={"unit": list(rows)}))
    if holds:
        assert judges.daemon(bench).holds
        return
    with pytest.raises(Undecided) as caught:
        judges.daemon(bench)
    assert caught.value.reason == "needs-root"


@pytest.mark.parametrize(("burst", "holds"), [(50.0, True), (100.0, False)])
def test_burst_must_be_faster_than_the_default(
    monkeypatch: pytest.MonkeyPatch, *, burst: float, holds: bool
) -> None:
    def ran(_: object, __: int, **options: object) -> tuple[Outcome, str]:
        mode = options["perf_profile"]
        value = Measure(burst if mode == "burst" else 100.0)
        return Outcome(Metrics(others={"execute_us": value})), str(mode)

    monkeypatch.setattr(judges, "_net_run", ran)
    found: RungVerdict = judges.performance(stand())
    assert found.holds is holds
    assert "flag 100 µs" in found.observed


def test_zones_that_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def zone(celsius: float) -> Facts:
        return Facts(thermal=(ThermalZone("z0", "nspss-0", celsius),))

    monkeypatch.setattr(judges, "_LOAD_SECONDS", 0.0)
    monkeypatch.setattr(judges, "facts_of", lambda _: zone(41.0))
    for before, holds in ((40.0, True), (41.0, False)):
        bench = stand(facts=zone(before), session=None)
        assert judges.zones(bench).holds is holds


def test_models_for_v73_wait_for_such_a_chip() -> None:
    other = Facts(soc=Soc(hexagon_arch="v75"), machine="aarch64")
    with pytest.raises(Undecided) as caught:
        judges.genie(stand(facts=other))
    assert caught.value.reason == "other-chip"
    with pytest.raises(Undecided) as caught:
        judges.genie(stand(version=(2, 45, 0)))
    assert caught.value.reason == "old-runtime"


def test_nothing_is_refused_on_an_emulated_board() -> None:
    lab = Facts(lab=True, soc=FACTS.soc)
    for rung in ("separator", "no-adsp-path", "other-skel", "zones", "performance", "daemon"):
        with pytest.raises(Undecided) as caught:
            JUDGES[rung](stand(facts=lab))
        assert caught.value.reason == "emulated"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        *((kind("x", hint="do y"), FELL) for kind in (DeviceError, HealthError, RunnerError)),
        (ProfileError("x", hint="do y"), FELL),
        *((kind("x", hint="do y"), UNDECIDED) for kind in (BundleError, InputError)),
        *((kind("x", hint="do y"), UNDECIDED) for kind in (RuntimeStoreError, WorkstationError)),
        (OSError(28, "No space left on device"), UNDECIDED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_of_the_workstation_never_counts_against_a_device(
    monkeypatch: pytest.MonkeyPatch, error: Exception, status: str
) -> None:
    def judge(_: Bench) -> RungVerdict:
        raise error

    (rung,) = [rung for rung in rungs() if rung.id == "ort"]
    monkeypatch.setitem(JUDGES, "ort", judge)
    found = climb(stand(), rung, [])
    assert (found.status, found.listed) == (status, True)
    if status == UNDECIDED and not isinstance(error, OSError):
        assert (found.reason, found.cure) == ("on this workstation, x", "do y")
