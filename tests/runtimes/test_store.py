from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleet.engine.deploy.plan import _notes
from fleet.model.errors import InputError, RuntimeStoreError
from fleet.model.facts import Facts, Tools
from fleet.runtimes.catalog import default_root
from fleet.runtimes.store import RuntimeStore
from tests.runtimes.fakes import (
    ARM,
    BUILD,
    OTHER,
    X86,
    elf,
    sdk_files,
    skel,
    wheel_files,
    write_tree,
    write_zip,
)

ID = f"qairt-{BUILD}"


def paths(store: RuntimeStore, name: str = ID) -> set[str]:
    return {item.path for item in store.get(name).libraries}


def test_default_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "own"))
    assert default_root() == tmp_path / "own" / "runtimes"


def test_sdk_folder(store: RuntimeStore, tmp_path: Path) -> None:
    runtime = store.add(write_tree(tmp_path / "sdk", sdk_files()))
    assert (runtime.id, runtime.version, runtime.build_id) == (ID, "2.51.0", BUILD)
    assert (runtime.targets, runtime.hexagon_archs) == ((ARM,), ("v73",))
    assert (runtime.source.kind, runtime.source.provides) == ("sdk-folder", (ARM, "hexagon-v73"))
    assert paths(store) == {
        *(
            f"lib/{ARM}/{name}"
            for name in (
                "libQnnHtp.so",
                "libQnnHtpV73Stub.so",
                "libQnnSystem.so",
                "libGenie.so",
                "libQnnHtpNetRunExtensions.so",
            )
        ),
        f"bin/{ARM}/genie-t2t-run",
        f"bin/{ARM}/qnn-net-run",
        "lib/hexagon-v73/unsigned/libQnnHtpV73Skel.so",
    }
    assert (runtime.root / "LICENSE.pdf").read_bytes() == b"terms"
    assert not (runtime.root / "docs").exists()
    assert store.get("2.51.0") == store.get(BUILD) == store.get(ID)


@pytest.mark.parametrize("prefix", ["", "2.51.0.260929/", "qairt/2.51.0.260929/"])
def test_sdk_zip_layouts(store: RuntimeStore, tmp_path: Path, prefix: str) -> None:
    archive = write_zip(tmp_path / "v2.51.0.zip", sdk_files(), prefix)
    runtime = store.add(archive)
    assert (runtime.targets, runtime.source.kind) == ((ARM,), "sdk-zip")
    assert not list(runtime.root.rglob("libSNPE.so"))
    again = store.add(archive)
    assert (runtime.changed, again.changed) == (True, False)


def test_the_folder_above_an_sdk_will_do(store: RuntimeStore, tmp_path: Path) -> None:
    write_tree(tmp_path / "x" / "qairt" / "2.51.0.260929", sdk_files())
    assert store.add(tmp_path / "x").id == ID


def test_two_sdks_in_one_folder_are_refused(store: RuntimeStore, tmp_path: Path) -> None:
    write_tree(tmp_path / "qairt" / "2.51.0", sdk_files())
    write_tree(tmp_path / "qairt" / "2.50.40", sdk_files(OTHER))
    with pytest.raises(RuntimeStoreError, match="more than one QAIRT SDK"):
        store.add(tmp_path / "qairt")


def test_what_is_no_sdk_is_refused(store: RuntimeStore, tmp_path: Path) -> None:
    write_tree(tmp_path / "x", {"readme.txt": b"hello"})
    with pytest.raises(RuntimeStoreError, match="not a QAIRT SDK"):
        store.add(tmp_path / "x")
    with pytest.raises(RuntimeStoreError, match="not a QAIRT SDK"):
        store.add(write_zip(tmp_path / "x.zip", {"readme.txt": b"hello"}))
    with pytest.raises(RuntimeStoreError, match="not a zip file, or is damaged"):
        store.add(tmp_path / "x" / "readme.txt")
    with pytest.raises(InputError, match="does not exist"):
        store.add(tmp_path / "nothing")


def test_targets_limit_what_is_taken(store: RuntimeStore, tmp_path: Path) -> None:
    other = "aarch64-android"
    files = sdk_files() | sdk_files(target=other) | sdk_files(target="aarch64-windows-msvc")
    sdk = write_tree(tmp_path / "sdk", files)
    assert store.add(sdk, targets=[other]).targets == (other,)
    assert store.add(sdk, targets=[other]).changed is False
    both = store.add(sdk)
    assert (both.targets, both.changed) == ((other, ARM), True)
    assert len(both.sources) == 1
    with pytest.raises(InputError, match="no files for the target x86_64"):
        store.add(sdk, targets=["x86_64-linux-clang"])


def test_wheels_of_one_build_become_one_runtime(store: RuntimeStore, tmp_path: Path) -> None:
    one = store.add(write_zip(tmp_path / "a.whl", wheel_files(machine=62)))
    two = store.add(write_zip(tmp_path / "b.whl", wheel_files()))
    assert one.targets == (X86,)
    assert (two.id, two.targets, two.changed) == (one.id, (ARM, X86), True)
    assert [item.name for item in two.sources] == ["a.whl", "b.whl"]
    assert f"lib/{X86}/libc++-71bc274c.so.1.0" in paths(store)
    assert "lib/hexagon-v73/unsigned/libQnnHtpV73Skel.so" in paths(store)
    assert not [path for path in paths(store) if "onnxruntime" in path]
    assert (two.root / "Qualcomm_LICENSE.pdf").is_file()
    for name in ("a.whl", "b.whl"):
        assert store.add(tmp_path / name).changed is False
    assert len(store.list()) == 1


def test_a_plan_names_the_source_of_its_own_target(store: RuntimeStore, tmp_path: Path) -> None:
    """A wheel and an SDK of one build are one runtime; a phone gets the files of the SDK."""
    phone = "aarch64-android"
    store.add(write_zip(tmp_path / "a.whl", wheel_files(machine=62)))
    runtime = store.add(write_zip(tmp_path / "v2.51.0.zip", sdk_files(target=phone)))
    assert [item.name for item in runtime.sources] == ["a.whl", "v2.51.0.zip"]
    bundle = SimpleNamespace(kind="genie", name="x", qairt=None, qairt_source="")
    state = SimpleNamespace(bad=frozenset())
    builder = SimpleNamespace(bundle=bundle, corrected=lambda _: ())
    for target, name in ((X86, "a.whl"), (phone, "v2.51.0.zip")):
        parts: Any = SimpleNamespace(runtime=runtime, target=target)
        notes = _notes(Facts(tools=Tools(sync_file=True)), builder, parts, state)  # type: ignore[arg-type]
        assert f"runtime from {name}" in notes


def test_wheels_of_two_builds_stay_two_runtimes(store: RuntimeStore, tmp_path: Path) -> None:
    store.add(write_zip(tmp_path / "old.whl", wheel_files(OTHER)))
    store.add(write_zip(tmp_path / "new.whl", wheel_files(machine=62)))
    assert [item.version for item in store.list()] == ["2.51.0", "2.50.40"]
    assert store.find(None, ARM) == store.get("2.50.40")
    assert store.find("2.51.0", ARM) is None
    assert store.find("2.51.0.260929", X86) == store.get(ID)


def test_an_sdk_replaces_the_target_of_a_wheel(store: RuntimeStore, tmp_path: Path) -> None:
    """The same build with other bytes: auditwheel rewrites RPATH in x86_64 wheels."""
    store.add(
        write_zip(
            tmp_path / "a.whl",
            wheel_files()
            | {
                "onnxruntime_qnn/libQnnSystem.so": elf() + b"patched",
                "onnxruntime_qnn/libc++-1.so.1.0": elf(),
            },
        )
    )
    assert f"lib/{ARM}/libc++-1.so.1.0" in paths(store)
    runtime = store.add(write_tree(tmp_path / "sdk", sdk_files()))
    assert f"lib/{ARM}/libc++-1.so.1.0" not in paths(store)
    assert not (runtime.root / f"lib/{ARM}/libc++-1.so.1.0").exists()
    assert (runtime.root / f"lib/{ARM}/libQnnSystem.so").read_bytes() == elf()
    store.verify(runtime, deep=True)
    assert [(item.kind, item.provides) for item in runtime.sources] == [
        ("wheel", ("hexagon-v73",)),
        ("sdk-folder", (ARM, "hexagon-v73")),
    ]
    assert store.add(tmp_path / "a.whl").changed is False
    assert f"bin/{ARM}/genie-t2t-run" in paths(store)


def test_other_bytes_of_the_same_build_are_refused(store: RuntimeStore, tmp_path: Path) -> None:
    store.add(write_tree(tmp_path / "sdk", sdk_files()))
    changed = sdk_files() | {f"lib/{ARM}/libQnnSystem.so": elf() + b"edited"}
    with pytest.raises(RuntimeStoreError, match=r"libQnnSystem\.so in .* differs"):
        store.add(write_tree(tmp_path / "sdk2", changed))
    store.verify(store.get(ID), deep=True)


def test_a_mixed_sdk_leaves_nothing_behind(store: RuntimeStore, tmp_path: Path) -> None:
    mixed = sdk_files() | {"lib/hexagon-v73/unsigned/libQnnHtpV73Skel.so": skel(0x73, OTHER)}
    with pytest.raises(RuntimeStoreError, match="mixes QAIRT versions") as caught:
        store.add(write_tree(tmp_path / "sdk", mixed))
    assert OTHER in caught.value.message
    assert BUILD in caught.value.message
    assert list(store.root.iterdir()) == []


def test_a_truncated_library_leaves_nothing_behind(store: RuntimeStore, tmp_path: Path) -> None:
    cut = sdk_files() | {f"lib/{ARM}/libGenie.so": elf(aisw="2.51.0")[:-4]}
    with pytest.raises(RuntimeStoreError, match=r"libGenie\.so is damaged"):
        store.add(write_tree(tmp_path / "sdk", cut))
    assert list(store.root.iterdir()) == []


def test_damage_is_reported_with_its_cure_and_repaired_by_it(
    store: RuntimeStore, tmp_path: Path
) -> None:
    wheel = write_zip(tmp_path / "a.whl", wheel_files())
    runtime = store.add(wheel)
    (runtime.root / f"lib/{ARM}/libGenie.so").unlink()
    (runtime.root / f"lib/{ARM}/libQnnHtp.so").write_bytes(b"short")
    calls: tuple[Callable[[], object], ...] = (
        lambda: store.get(ID),
        lambda: store.find(None, ARM),
    )
    for call in calls:
        with pytest.raises(RuntimeStoreError, match=r"libGenie\.so is missing \(and 1 more\)") as e:
            call()
        assert e.value.hint == f"fleet runtime fetch 2.51.0 --target {ARM}"
    assert len(store.problems()) == 2
    assert store.add(wheel).changed is True
    store.verify(store.get(ID), deep=True)
    assert store.problems() == ()


def test_the_cure_names_the_source_of_the_damaged_file(store: RuntimeStore, tmp_path: Path) -> None:
    store.add(write_zip(tmp_path / "a.whl", wheel_files()))
    store.add(write_zip(tmp_path / "b.whl", wheel_files(machine=62)))
    sdk = write_tree(tmp_path / "sdk", sdk_files(target="aarch64-android"))
    runtime = store.add(sdk)
    cures = {X86: f"fetch 2.51.0 --target {X86}", "aarch64-android": f"add {sdk}"}
    for target, cure in cures.items():
        path = runtime.root / f"lib/{target}/libQnnHtp.so"
        data = path.read_bytes()
        path.unlink()
        with pytest.raises(RuntimeStoreError) as caught:
            store.get(ID)
        assert caught.value.hint == f"fleet runtime {cure}"
        path.write_bytes(data)


def test_what_the_system_refuses_is_said_with_its_cause(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = RuntimeStore(tmp_path / "file" / "runtimes")
    with pytest.raises(RuntimeStoreError, match=r"cannot add .*a file, not a folder") as caught:
        store.add(write_zip(tmp_path / "a.whl", wheel_files()))
    assert "FLEET_HOME" in caught.value.hint


def test_changed_bytes_are_found_by_the_deep_check(store: RuntimeStore, tmp_path: Path) -> None:
    runtime = store.add(write_zip(tmp_path / "a.whl", wheel_files()))
    path = runtime.root / f"lib/{ARM}/libGenie.so"
    path.write_bytes(path.read_bytes()[:-1] + b"X")
    store.verify(runtime)
    with pytest.raises(RuntimeStoreError, match=r"libGenie\.so was modified"):
        store.verify(runtime, deep=True)


@pytest.mark.parametrize("record", ["", "{}", '{"schema": 9}', "[]"])
def test_an_unreadable_record_harms_only_itself(
    store: RuntimeStore, tmp_path: Path, record: str
) -> None:
    store.add(write_zip(tmp_path / "a.whl", wheel_files()))
    broken = store.add(write_zip(tmp_path / "b.whl", wheel_files(OTHER)))
    (broken.root / "runtime.json").write_text(record)
    assert [item.id for item in store.list()] == [ID]
    assert "cannot read the description" in store.problems()[0]
    with pytest.raises(RuntimeStoreError, match="cannot read the description") as caught:
        store.get(broken.id)
    assert f"fleet runtime remove {broken.id}" in caught.value.hint
    assert store.remove(broken.id) is None
    assert store.problems() == ()


def test_remove(store: RuntimeStore, tmp_path: Path) -> None:
    store.add(write_zip(tmp_path / "a.whl", wheel_files()))
    removed = store.remove("2.51.0")
    assert removed is not None
    assert removed.id == ID
    assert [path.name for path in store.root.iterdir()] == [".lock"]
    for name in (ID, "../escape", ".lock"):
        with pytest.raises(InputError):
            store.remove(name)


def test_get_names_what_there_is(store: RuntimeStore, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no runtime '2\.51\.0'") as caught:
        store.get("2.51.0")
    assert "none" in caught.value.hint
    store.add(write_zip(tmp_path / "a.whl", wheel_files()))
    with pytest.raises(InputError) as caught:
        store.get("2.50.40")
    assert ID in caught.value.hint


def test_a_wheel_for_another_target_is_refused(store: RuntimeStore, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"is for {ARM}, but --target is {X86}"):
        store.add(write_zip(tmp_path / "a.whl", wheel_files()), targets=[X86])


def test_sha256_of_a_file_is_checked(store: RuntimeStore, tmp_path: Path) -> None:
    with pytest.raises(RuntimeStoreError, match=r"the SHA-256 of .* is"):
        store.add(write_zip(tmp_path / "a.whl", wheel_files()), sha256="0" * 64)


def test_progress_ends_at_the_total(store: RuntimeStore, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    store.add(
        write_zip(tmp_path / "a.whl", wheel_files()), progress=lambda *step: seen.append(step)
    )
    total = sum(item.size for item in store.get(ID).libraries) + len(b"terms")
    assert seen[0] == ("adding", 0, total)
    assert seen[-1] == ("adding", total, total)


def test_a_stage_of_a_killed_process_is_swept(store: RuntimeStore, tmp_path: Path) -> None:
    old, new = store.root / ".stage-old", store.root / ".stage-new"
    for folder in (old, new):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    store.add(write_zip(tmp_path / "a.whl", wheel_files()))
    assert (old.exists(), new.exists()) == (False, True)


def test_several_processes_at_once(store: RuntimeStore, tmp_path: Path) -> None:
    """Six processes add the same three things: one of them wins each, none breaks anything."""
    sources = [
        write_zip(tmp_path / "a.whl", wheel_files()),
        write_zip(tmp_path / "b.whl", wheel_files(machine=62)),
        write_zip(tmp_path / "sdk.zip", sdk_files(target="aarch64-android")),
    ]
    code = (
        "import json, sys; from pathlib import Path\n"
        "from fleet.runtimes.store import RuntimeStore\n"
        "store = RuntimeStore(Path(sys.argv[1]))\n"
        "sys.stdin.readline()\n"
        "print(json.dumps([store.add(p).changed for p in sys.argv[2:]]))"
    )
    command = [sys.executable, "-c", code, str(store.root), *map(str, sources)]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    results = [json.loads(worker.communicate(timeout=120)[0]) for worker in workers]
    assert [sum(row[i] for row in results) for i in range(3)] == [1, 1, 1]
    runtime = store.verify(store.get(ID), deep=True)
    assert runtime.targets == ("aarch64-android", ARM, X86)
    assert {path.name for path in store.root.iterdir()} == {".lock", ID}
