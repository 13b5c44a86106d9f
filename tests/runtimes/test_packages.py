"""Packages for a device, chosen by the real pip from wheels of our own."""

from __future__ import annotations

import json
import threading
import zipfile
from pathlib import Path

import pytest

from fleet.model.errors import RuntimeStoreError
from fleet.model.files import sha256_file
from fleet.runtimes.packages import Packages, packages_for
from fleet.runtimes.stage import silent
from tests.support_runtime import ARM, X86


def wheel(folder: Path, name: str, tag: str, files: dict[str, bytes], version: str = "1.0") -> Path:
    path = folder / f"{name}-{version}-{tag}.whl"
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n")
        archive.writestr(f"{info}/RECORD", "")
        for member, content in files.items():
            archive.writestr(member, content)
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels, and a pip that knows nothing else."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def get(root: Path, *names: str, python: str = "3.12", target: str = ARM, **more: bool) -> Packages:
    offline = more.get("offline", False)
    return packages_for(
        names, python, target, offline=offline, progress=silent, root=root / "packages"
    )


def test_the_wheel_of_the_device_not_of_this_machine(index: Path, tmp_path: Path) -> None:
    for tag in ("cp311-cp311-manylinux_2_28_x86_64", "cp312-cp312-manylinux_2_28_x86_64",
                "cp312-cp312-manylinux_2_28_aarch64"):  # fmt: skip
        wheel(index, "fast", tag, {"fast/native.so": tag.encode()})
    wheel(index, "pure", "py3-none-any", {"pure/__init__.py": b"x = 1"})
    found = get(tmp_path, "fast", "pure")
    content = {one.name: one.source.read_bytes() for one in found.files}
    assert content["site/fast/native.so"] == b"cp312-cp312-manylinux_2_28_aarch64"
    assert content["site/pure/__init__.py"] == b"x = 1"
    assert all(one.sha256 == sha256_file(one.source) for one in found.files)
    other = get(tmp_path, "fast", python="3.11", target=X86)
    (native,) = (one for one in other.files if one.name.endswith(".so"))
    assert native.source.read_bytes() == b"cp311-cp311-manylinux_2_28_x86_64"


def test_chosen_once_and_then_always_the_same(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(index, "pure", "py3-none-any", {"pure/__init__.py": b"x = 1"})
    first = get(tmp_path, "pure")
    wheel(index, "pure", "py3-none-any", {"pure/__init__.py": b"x = 2"}, version="2.0")
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    assert get(tmp_path, "pure", offline=True) == first
    assert list(first.wheels) == ["pure-1.0-py3-none-any.whl"]


def test_licences_go_along_and_tests_stay_here(index: Path, tmp_path: Path) -> None:
    files = {
        "pure/__init__.py": b"",
        "pure/tests/test_x.py": b"",
        "pure/api.pyi": b"",
        "pure-1.0.dist-info/licenses/LICENSE": b"ours",
        "onnxruntime_qnn/libQnnHtp.so": b"\x7fELF",
        "onnxruntime_qnn/libonnxruntime_providers_qnn.so": b"\x7fELF",
    }
    wheel(index, "pure", "py3-none-any", files)
    names = {one.name for one in get(tmp_path, "pure").files}
    assert {name for name in names if "dist-info" not in name} == {
        "site/pure/__init__.py",
        "site/onnxruntime_qnn/libonnxruntime_providers_qnn.so",
    }
    assert "site/pure-1.0.dist-info/licenses/LICENSE" in names


def test_no_wheel_for_this_python(index: Path, tmp_path: Path) -> None:
    wheel(index, "fast", "cp311-cp311-manylinux_2_28_aarch64", {"fast/native.so": b""})
    with pytest.raises(RuntimeStoreError, match=r"no wheel for Python 3\.13 on manylinux_2_34"):
        get(tmp_path, "fast", python="3.13")
    assert not [one for one in (tmp_path / "packages").iterdir() if one.is_dir()]


def test_offline_and_not_here(index: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeStoreError, match="--offline forbids a download"):
        get(tmp_path, "pure", offline=True)


def test_a_wheel_that_leads_out_is_refused(index: Path, tmp_path: Path) -> None:
    wheel(index, "evil", "py3-none-any", {"../../evil.py": b"x"})
    with pytest.raises(RuntimeStoreError, match="has a path outside the folder of the wheel"):
        get(tmp_path, "evil")
    assert not list(tmp_path.rglob("evil.py"))


def test_two_at_once_make_one(index: Path, tmp_path: Path) -> None:
    wheel(index, "pure", "py3-none-any", {"pure/__init__.py": b"x = 1"})
    found: list[Packages] = []
    threads = [
        threading.Thread(target=lambda: found.append(get(tmp_path, "pure"))) for _ in range(3)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    assert len(found) == 3
    assert found[0] == found[1] == found[2]


def test_a_damaged_record_is_named(index: Path, tmp_path: Path) -> None:
    wheel(index, "pure", "py3-none-any", {"pure/__init__.py": b""})
    source = next(one for one in get(tmp_path, "pure").files).source
    record = next(one for one in source.parents if (one / "packages.json").is_file())
    (record / "packages.json").write_text(json.dumps({"files": []}))
    with pytest.raises(RuntimeStoreError, match="are damaged"):
        get(tmp_path, "pure")


def test_phones_have_no_wheels(tmp_path: Path) -> None:
    with pytest.raises(RuntimeStoreError, match="fleet knows no Python packages"):
        get(tmp_path, "numpy", target="aarch64-android")
