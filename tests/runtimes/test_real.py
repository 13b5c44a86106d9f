"""Qualcomm's own files: what is stored really loads, and the selection really is enough."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fleet.device.texts import path_of
from fleet.runtimes.select import Selection, select_files
from fleet.runtimes.store import RuntimeStore
from tests.support_runtime import ARM, X86

pytestmark = [
    pytest.mark.qairt,
    pytest.mark.skipif(
        (sys.platform, os.uname().machine) != ("linux", "x86_64"),
        reason="the HTP emulator runs on x86_64 Linux only",
    ),
]
ROOT = Path(__file__).parents[2]
BUNDLE = ROOT / "assets" / "tiny-genie"
RUNNER = path_of("fleet_genie.py")


def release(selection: Selection, folder: Path) -> Path:
    """The selected files and nothing else, as on a device."""
    for item in selection.files:
        place = folder / item.name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(item.source)
    return folder / "lib"


def run(command: list[str], libraries: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {"LD_LIBRARY_PATH": str(libraries), "PATH": os.defpath}
    return subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_libraries_load_with_nothing_but_their_folder(
    qairt_store: RuntimeStore, tmp_path: Path
) -> None:
    runtime = qairt_store.get("2.51.0")
    folder = runtime.root / "lib" / X86
    code = (
        "import ctypes, os\n"
        "for name in ('libQnnHtp.so', 'libQnnSystem.so', 'libGenie.so'): ctypes.CDLL(name)\n"
        "print(ctypes.CDLL('libGenie.so').Genie_getApiMinorVersion(), flush=True); os._exit(0)"
    )
    done = run([sys.executable, "-c", code], folder, tmp_path)
    assert done.stdout == "21\n", done.stderr  # Genie 1.21, as qairt_releases.yaml says


@pytest.mark.parametrize(
    ("leave_out", "status"),
    [("", 0), ("libQnnSystem.so", 11), ("libQnnHtp.so", 11), ("libQnnHtpNetRunExtensions.so", 0)],
)
def test_the_selection_opens_a_dialog_and_nothing_of_it_is_too_much(
    qairt_store: RuntimeStore, tmp_path: Path, leave_out: str, status: int
) -> None:
    """Without NetRunExtensions the dialog opens and silently forgets the extensions file."""
    selection = select_files(qairt_store.get("2.51.0"), X86, None, "genie")
    libraries = release(selection, tmp_path)
    if leave_out:
        (libraries / leave_out).unlink()
    command = [sys.executable, str(RUNNER), "--check", "--config", "genie_config.json"]
    command += ["--outcome", str(tmp_path / "outcome.json")]
    done = run(command, libraries, BUNDLE)
    assert done.returncode == status, done.stderr
    lost = "Unable to load backend extensions lib" in done.stderr + done.stdout
    assert lost == (leave_out == "libQnnHtpNetRunExtensions.so")


def test_libcxx_is_needed(qairt_store: RuntimeStore, tmp_path: Path) -> None:
    libraries = release(select_files(qairt_store.get("2.51.0"), X86, None, "genie"), tmp_path)
    for path in libraries.glob("libunwind*"):
        path.unlink()
    code = "import ctypes; ctypes.CDLL('libGenie.so')"
    done = run([sys.executable, "-c", code], libraries, tmp_path)
    assert "libunwind" in done.stderr


def test_an_sdk_zip_of_real_files(qairt_store: RuntimeStore, tmp_path: Path) -> None:
    """Built from the aarch64 wheel's stubs, skels and backend; ends as the same build."""
    runtime = qairt_store.get("2.51.0")
    wanted = [
        item
        for item in runtime.libraries
        if item.path.startswith((f"lib/{ARM}/", "lib/hexagon-v73/")) and item.size < 20_000_000
    ]
    archive = tmp_path / "v2.51.0.260929.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for item in wanted:
            file.write(runtime.root / item.path, f"qairt/2.51.0.260929/{item.path}")
    store = RuntimeStore(tmp_path / "runtimes")
    added = store.add(archive)
    assert (added.id, added.targets, added.hexagon_archs) == (runtime.id, (ARM,), ("v73",))
    assert {(i.path, i.sha256, i.build_id) for i in added.libraries} == {
        (i.path, i.sha256, i.build_id) for i in wanted
    }
    record = json.loads((added.root / "runtime.json").read_text("utf-8"))
    assert record["build_id"] == runtime.build_id


def test_an_sdk_folder_shares_its_bytes_with_the_store(
    qairt_store: RuntimeStore, tmp_path: Path
) -> None:
    """The store of the cache has SDK layout, so it serves as a real SDK folder."""
    runtime = qairt_store.get("2.51.0")
    store = RuntimeStore(qairt_store.root.parent / f"linked-{tmp_path.name}")  # same disk
    try:
        added = store.add(runtime.root, targets=[ARM])
        assert (added.id, added.targets) == (runtime.id, (ARM,))
        library = added.libraries[0]
        assert (added.root / library.path).samefile(runtime.root / library.path)
    finally:
        store.remove(runtime.id)
        (store.root / ".lock").unlink()
        store.root.rmdir()


def test_the_store_of_the_cache_is_sound(qairt_store: RuntimeStore) -> None:
    for runtime in qairt_store.list():
        qairt_store.verify(runtime, deep=True)
