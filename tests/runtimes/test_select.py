from __future__ import annotations

from pathlib import Path

import pytest

from fleet.model.errors import InputError, RuntimeStoreError
from fleet.model.runtime import Runtime
from fleet.runtimes.select import Selection, runners, select_files
from fleet.runtimes.store import RuntimeStore
from tests.runtimes.fakes import ARM, X86, elf, sdk_files, skel, wheel_files, write_tree, write_zip
from tests.support_runtime import ARM as REAL_ARM

WIN = "aarch64-windows-msvc"


@pytest.fixture
def sdk(store: RuntimeStore, tmp_path: Path) -> Runtime:
    files = sdk_files() | {
        f"lib/{ARM}/libQnnHtpV81Stub.so": elf(),
        "lib/hexagon-v81/unsigned/libQnnHtpV81Skel.so": skel(0x81),
        "lib/hexagon-v81/unsigned/libqnnhtpv81.cat": b"signature",
    }
    return store.add(write_tree(tmp_path / "sdk", files))


@pytest.fixture
def wheel(store: RuntimeStore, tmp_path: Path) -> Runtime:
    store.add(write_zip(tmp_path / "a.whl", wheel_files()))
    return store.add(write_zip(tmp_path / "b.whl", wheel_files(machine=62)))


def names(selection: Selection) -> list[str]:
    return [item.name for item in selection.files]


def test_genie_on_a_device(sdk: Runtime) -> None:
    selection = select_files(sdk, ARM, "v73", "genie")
    assert names(selection) == [
        "bin/genie-t2t-run",
        "dsp/libQnnHtpV73Skel.so",
        "lib/libGenie.so",
        "lib/libQnnHtp.so",
        "lib/libQnnHtpNetRunExtensions.so",
        "lib/libQnnHtpV73Stub.so",
        "lib/libQnnSystem.so",
    ]
    assert (selection.missing, selection.arch_problem, selection.has_tool) == ((), "", True)
    assert [item.name for item in selection.files if item.executable] == ["bin/genie-t2t-run"]
    for item in selection.files:
        assert item.source.stat().st_size == item.size
    assert selection.size == sum(item.size for item in selection.files)


def test_a_wheel_has_no_tool_and_that_is_no_problem(wheel: Runtime) -> None:
    selection = select_files(wheel, ARM, "v73", "genie")
    assert (selection.has_tool, selection.missing) == (False, ())


def test_each_arch_has_its_own_stub_and_skel(sdk: Runtime) -> None:
    assert {"dsp/libQnnHtpV81Skel.so", "lib/libQnnHtpV81Stub.so"} <= set(
        names(select_files(sdk, ARM, "v81", "genie"))
    )
    assert "dsp/libqnnhtpv81.cat" not in names(select_files(sdk, ARM, "v81", "genie"))


def test_an_arch_that_the_runtime_lacks_is_missing_by_name(sdk: Runtime) -> None:
    selection = select_files(sdk, ARM, "v75", "genie")
    assert selection.missing == (
        f"lib/{ARM}/libQnnHtpV75Stub.so",
        "lib/hexagon-v75/unsigned/libQnnHtpV75Skel.so",
    )
    assert selection.arch_problem == ""


def test_an_unknown_arch_is_said_and_nothing_is_guessed(sdk: Runtime) -> None:
    selection = select_files(sdk, ARM, None, "genie")
    assert "cannot choose the stub and skel libraries" in selection.arch_problem
    assert not [name for name in names(selection) if "Stub" in name or "Skel" in name]
    assert selection.missing == ()


@pytest.mark.parametrize("arch", [None, "v73"])
def test_the_emulator_needs_neither_stub_nor_skel(wheel: Runtime, arch: str | None) -> None:
    selection = select_files(wheel, X86, arch, "genie")
    assert names(selection) == [
        "lib/libGenie.so",
        "lib/libQnnHtp.so",
        "lib/libQnnHtpNetRunExtensions.so",
        "lib/libQnnSystem.so",
        "lib/libc++-71bc274c.so.1.0",
    ]
    assert (selection.missing, selection.arch_problem) == ((), "")


def test_qnn_net_run_needs_its_program(wheel: Runtime) -> None:
    assert select_files(wheel, ARM, "v73", "qnn-net-run").missing == (f"bin/{ARM}/qnn-net-run",)


def test_qnn_net_run_of_an_sdk(sdk: Runtime) -> None:
    selection = select_files(sdk, ARM, "v73", "qnn-net-run")
    assert (selection.missing, selection.has_tool) == ((), True)
    assert "lib/libGenie.so" not in names(selection)


@pytest.mark.parametrize(
    ("feature", "library"),
    [("dlc", "libQnnModelDlc.so"), ("dlc", "libQnnHtpPrepare.so"),
     ("model-library", "libQnnHtpPrepare.so"),
     ("QnnGenAiTransformer", "libQnnGenAiTransformerCpuOpPkg.so"), ("QnnGpu", "libQnnGpu.so")],
)  # fmt: skip
def test_features_are_required(wheel: Runtime, sdk: Runtime, feature: str, library: str) -> None:
    runner = "qnn-net-run"
    for runtime in (wheel, sdk):
        plain = select_files(runtime, ARM, "v73", runner)
        more = select_files(runtime, ARM, "v73", runner, (feature,))
        there = {item.path for item in runtime.libraries}
        if f"lib/{ARM}/{library}" in there:
            assert f"lib/{library}" in names(more)
        else:
            assert f"lib/{ARM}/{library}" in set(more.missing) - set(plain.missing)


def test_mllm_needs_prepare(sdk: Runtime) -> None:
    selection = select_files(sdk, ARM, "v73", "mllm")
    assert selection.missing == (f"lib/{ARM}/libQnnHtpPrepare.so",)
    with pytest.raises(InputError, match="does not run on the QAIRT target x86_64"):
        select_files(sdk, X86, "v73", "mllm")


def test_windows_gets_the_catalog_beside_the_skel(store: RuntimeStore, tmp_path: Path) -> None:
    from tests.runtimes.fakes import BUILD, dll

    files = {
        f"onnxruntime_qnn/{name}": dll(build=BUILD)
        for name in (
            "QnnHtp.dll",
            "QnnSystem.dll",
            "Genie.dll",
            "QnnHtpNetRunExtensions.dll",
            "QnnHtpV73Stub.dll",
            "onnxruntime_providers_qnn.dll",
        )
    }
    files |= {
        "onnxruntime_qnn/libQnnHtpV73Skel.so": skel(0x73),
        "onnxruntime_qnn/libqnnhtpv73.cat": b"signature",
    }
    store.add(write_zip(tmp_path / "l.whl", wheel_files()))
    runtime = store.add(write_zip(tmp_path / "w.whl", files))
    assert runtime.targets == (ARM, WIN)
    selection = select_files(runtime, WIN, "v73", "genie")
    assert selection.missing == ("bin/aarch64-windows-msvc/genie-t2t-run.exe",)  # wheels have none
    assert select_files(runtime, WIN, "v73", "ort").missing == ()
    assert {"dsp/libQnnHtpV73Skel.so", "dsp/libqnnhtpv73.cat", "lib/Genie.dll"} <= set(
        names(selection)
    )


def test_what_cannot_be_asked(sdk: Runtime) -> None:
    with pytest.raises(RuntimeStoreError, match="has no target x86_64-linux-clang") as caught:
        select_files(sdk, X86, None, "genie")
    assert f"fleet runtime fetch 2.51.0 --target {X86}" in caught.value.hint
    with pytest.raises(InputError, match="is not a runner"):
        select_files(sdk, ARM, "v73", "snpe")
    with pytest.raises(InputError, match="not a QAIRT target"):
        select_files(sdk, "aarch64-linux", "v73", "genie")
    assert runners() == (
        *("genie", "qnn-net-run", "mllm", "executorch", "ort", "litert", "runtime", "exec"),
    )


@pytest.mark.qairt
@pytest.mark.parametrize("arch", ["v68", "v69", "v73", "v75", "v79", "v81"])
def test_the_real_wheel_has_all_for_every_arch(qairt_store: RuntimeStore, arch: str) -> None:
    runtime = qairt_store.get("2.51.0")
    selection = select_files(runtime, REAL_ARM, arch, "genie")
    assert (selection.missing, selection.arch_problem) == ((), "")
    skels = [item for item in runtime.libraries if item.name == f"libQnnHtpV{arch[1:]}Skel.so"]
    assert [item.hexagon_arch for item in skels] == [arch]
