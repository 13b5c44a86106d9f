"""What machines write has one form: it is read as equal, and written as it was.

`data/written` holds what fleet 0.3.0 wrote before its values became Structs.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from pathlib import Path
from typing import Any

import pytest

import fleet
from fleet.engine.options import DeployOptions
from fleet.engine.rollout.inputs import Inputs
from fleet.engine.rollout.journal import Journal
from fleet.engine.rollout.lines import RunHeader
from fleet.engine.rollout.waves import Wave
from fleet.engine.run.ab.journal import Asked
from fleet.engine.system.undo import UndoLog
from fleet.engine.transfer.context import TransferOptions
from fleet.model.diagnosis import Check, Diagnosis, Evidence, Question, Remedy
from fleet.model.events import DeviceDone
from fleet.model.facts import Android, Battery, DeviceNode, Disk, Facts, Soc, ThermalZone, Tools
from fleet.model.files import FileRef
from fleet.model.finding import Finding
from fleet.model.lease import LeaseHolder
from fleet.model.manifest import Manifest, read_manifest
from fleet.model.plain import field_names, members_of, read_plain, to_plain
from fleet.model.rollout import Amount, RolloutSpec
from fleet.model.runtime import Library, RuntimeSource
from fleet.model.system import FileSeen, WantedFile
from fleet.ops.system.steps_files import WriteFile
from fleet.runtimes import manifest as runtimes
from fleet.transport.trustlog import Trusted

WRITTEN = Path(__file__).parent / "data" / "written"
RUN = "20261128-000000-abcdef"
FACTS = Facts(
    hostname="evk",
    soc=Soc(676, "QCS9075", ("qcom,qcs9075",), hexagon_arch="v73"),
    nodes=(DeviceNode("/dev/fastrpc-cdsp", True, "660", "root", "fastrpc", ""),),
    disk=Disk("/home/u", available_bytes=5),
    thermal=(ThermalZone("z0", "cpu", 40.5),),
    remoteproc=(("cdsp", "running"),),
    tools=Tools(python3="/usr/bin/python3", sha256=("sha256sum",)),
    android=Android("15", battery=Battery(50)),
)
SPEC = RolloutSpec(
    canary=Amount.parse("12.5%"),
    canary_hosts=("a*",),
    waves=(Amount.parse(3), Amount.parse("50%")),
    max_failed=Amount.parse("10 %"),
    soak=90.0,
    on_fail="rollback",
)
ASKED = Asked(
    "a.yaml",
    "b.yaml",
    "p.yaml",
    "inv.yaml",
    ("evk",),
    {"decode_tps": 0.05},
    boots=2,
    sustained=30.0,
    order={"evk": "AABABBABABBABBBAAAAAABBB"},
)
TRUSTED = Trusted(
    "2026-11-28T00:00:00Z", "evk", "10.0.0.7", "ssh-ed25519", "", "SHA256:x", "ann@desk", "new"
)
STEP = WriteFile(
    WantedFile("/etc/x", b"new", "0644", "root", "root"),
    "/base",
    FileSeen("file", content=b"old\xff", mode="600", owner="root", group="root"),
)
VALUES: dict[str, Any] = {
    "event": DeviceDone("evk", "changed", "ok", "", 1.5, 4, 99, True),
    "facts": FACTS,
    "holder": LeaseHolder("write", 3, "ann@desk", "", RUN, "secret", left=40, age=None, busy=True),
    "finding": Finding("soc-unknown", "refuse", "m", "h", "n", "c"),
    "rollout": SPEC,
    "diagnosis": Diagnosis(
        "evk",
        "healthy",
        checks=(Check("host", "host", "ok", "t", {"a": "b"}),),
        questions=(Question("q", "t"),),
        suspects=(Evidence("log", "x", 3), Evidence("log", "y")),
        remedy=Remedy("c", "provision"),
        seconds=1.23456,
        parts={"a": "b"},
    ),
    "plan-action": STEP,
    "trusted": TRUSTED,
    "ab": ASKED,
}


def written(name: str) -> Any:
    return json.loads((WRITTEN / f"{name}.json").read_text("utf-8"))


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_written_as_before(name: str) -> None:
    assert to_plain(VALUES[name]) == written(name)


def test_what_is_read_again_is_equal() -> None:
    assert read_plain(Facts, written("facts"), "facts", "") == FACTS
    assert read_plain(RolloutSpec, written("rollout"), "rollout", "") == SPEC
    assert read_plain(Trusted, written("trusted"), "line", "") == TRUSTED
    assert read_plain(Asked, written("ab"), "ab.json", "") == ASKED


def test_a_release_keeps_its_id() -> None:
    files = (
        FileRef(Path("/x/b"), "lib/b.so", 3, "b" * 64),
        FileRef(Path("/x/a"), "bin/a", 2, "a" * 64, executable=True),
    )
    origin = {"build_id": "2.51.0", "health": {"argv": ["a"], "timeout": 1.0}}
    made = Manifest("tiny", files, {"LD_LIBRARY_PATH": "{release}/lib"}, ("X",), origin)
    found = written("manifest")
    assert (made.id, to_plain(made)) == (found["id"], found["text"])
    again = read_manifest(json.dumps(found["text"]), "tiny", made.id, whole=True)
    assert to_plain(again) == found["text"]


def test_a_journal_is_read_as_it_was_meant(tmp_path: Path) -> None:
    state = Journal.read(WRITTEN / "journal.jsonl")
    header = state.header
    pace = TransferOptions("ssh", 5e6, 2, whole=True, compress="never", relay=True)
    assert header.options == DeployOptions(run="always", parallel=4, transfer=pace)
    assert header.inputs == Inputs(Path("/p/a.yaml"), Path("/p/inv.yaml"), ("all",))
    assert header.hashes == {"playbook /p/a.yaml": "c" * 64}
    assert (header.run, header.owner, header.name) == (RUN, "ann@desk", "tiny")
    assert header.waves == (Wave("canary", ("a",)), Wave("1", ("b",)))
    assert header.rollout == RolloutSpec(canary=Amount.parse(1))
    assert state.devices["a"].outcome == "changed"
    assert state.devices["a"].switched
    assert state.word == "interrupted"
    path = tmp_path / RUN / "journal.jsonl"
    Journal.begin(path, header).close()
    old, new = (
        json.loads(file.read_text("utf-8").splitlines()[0])
        for file in (WRITTEN / "journal.jsonl", path)
    )
    del old["options"]["lock"]  # null, whatever was given
    assert new.pop("options") == old.pop("options") | {"tags": []}
    same = new.keys() - {"at", "pid", "workstation", "owner"}
    assert {key: new[key] for key in same} == {key: old[key] for key in same}


def test_a_resumed_deploy_keeps_its_tags(tmp_path: Path) -> None:
    path = tmp_path / RUN / "journal.jsonl"
    header = RunHeader(run=RUN, waves=(), options=DeployOptions(tags=("nightly",)))
    Journal.begin(path, header).close()
    assert Journal.read(path).header.options.tags == ("nightly",)


def test_an_undo_log_is_read_and_written_as_before(tmp_path: Path) -> None:
    log = UndoLog(tmp_path, "run", "evk")
    log.begin(STEP)
    log.end()
    log.begin(STEP)
    log.undone(0)
    assert log.path.read_bytes() == (WRITTEN / "undo.jsonl").read_bytes()
    first, second = log.read()
    assert first.commands == STEP.undo()
    assert first.staged == STEP.undo_staged()
    assert (first.ended, first.undone) == (True, True)
    assert (second.ended, second.undone) == (False, False)


def test_a_runtime_is_read_and_written_as_before(tmp_path: Path) -> None:
    library = Library(
        "lib/x86_64-linux-clang/libQnnHtp.so", 3, "e" * 64, "x86_64", None, "2.51.0.1"
    )
    source = RuntimeSource("wheel", "x.whl", "d" * 64, ("x86_64-linux-clang",))
    runtime = runtimes.make("2.51.0.1", tmp_path, (source,), [library])
    runtimes.write(runtime, tmp_path)
    assert json.loads((tmp_path / runtimes.NAME).read_text("utf-8")) == written("runtime")
    assert runtimes.read(tmp_path) == runtime


def classes() -> list[type]:
    """Every class of fleet that says what JSON shows of it."""
    found = {}
    for module in pkgutil.walk_packages(fleet.__path__, "fleet."):
        if not module.name.startswith("fleet.device.") and not module.name.endswith("__main__"):
            for kind in vars(importlib.import_module(module.name)).values():
                if isinstance(kind, type) and "PLAIN" in vars(kind):
                    found[f"{kind.__module__}.{kind.__qualname__}"] = kind
    return list(found.values())


def test_each_name_that_json_shows_is_a_member_of_its_class() -> None:
    kinds = classes()
    assert len(kinds) > 30
    for kind in kinds:
        known = {*field_names(kind), *dir(kind), *inspect.signature(kind).parameters}
        for member in members_of(kind) or ():
            assert member.path.partition(".")[0] in known, f"{kind.__name__}: {member.path}"
