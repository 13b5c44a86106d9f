"""Archives that nobody should unpack."""

from __future__ import annotations

import contextlib
import io
import stat
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.bundles.aihub.pull import lay_out, pull
from fleet.model.errors import AiHubError
from tests.standins.aihub import AiHub, Asset

from .conftest import zipped


def link() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        info = zipfile.ZipInfo("model.bin")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    return stream.getvalue()


def shared() -> bytes:
    """200 members that share the bytes of one: each alone grows 200 times only."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a0", b"\0" * 9_000_000)
    data = stream.getvalue()
    start = struct.unpack("<I", data[-6:-2])[0]
    entry, end = data[start:-22], data[-22:]
    entries = b"".join(entry[:46] + f"a{n}".encode().ljust(2, b"x")[:2] for n in range(100))
    size = struct.pack("<HHI", 100, 100, len(entries))
    return data[:start] + entries + end[:8] + size + end[16:]


def damaged() -> bytes:
    whole = bytearray(zipped({"model.bin": bytes(range(256)) * 40}))
    whole[100] ^= 0x10
    return bytes(whole)


HOSTILE = {
    "dots": zipped({"../out": b"x"}),
    "inner dots": zipped({"a/../../out": b"x"}),
    "absolute": zipped({"/tmp/out": b"x"}),
    "drive": zipped({"C:out": b"x"}),
    "backslash": zipped({"a\\..\\out": b"x"}),
    "link": link(),
    "bomb": zipped({"model.bin": b"\0" * 60_000_000}),
    "shared bomb": shared(),
    "many": zipped({f"f{n}": b"" for n in range(10_001)}),
    "file and folder": zipped({"a": b"x", "a/b": b"y"}),
    "twice": zipped({"a/b": b"x", "a//b": b"y"}),
    "line break": zipped({"a\nb": b"x"}),
    "our record": zipped({"aihub.json": b"{}", "b": b""}),
    "empty": zipped({}),
    "no zip": b"hello",
    "cut": zipped({"model.bin": bytes(range(256)) * 40})[:-30],
    "damaged": damaged(),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_leave_nothing(hub: AiHub, tmp_path: Path, name: str) -> None:
    hub.assets["mbin1"] = Asset("net.onnx.zip", HOSTILE[name])
    before = set(tmp_path.rglob("*"))
    with pytest.raises(AiHubError) as caught:
        pull("aihub:jbin1", tmp_path / "net")
    assert set(tmp_path.rglob("*")) == before
    assert caught.value.hint


def test_the_name_on_ai_hub_leads_nowhere(hub: AiHub, tmp_path: Path) -> None:
    hub.assets["mbin1"].filename = "../../../tmp/x\x1b[31m/../evil\x1b]0;t\x07.b in"
    folder = pull("aihub:jbin1", tmp_path / "net").folder
    assert {path.name for path in folder.iterdir()} >= {"tiny.b_in", "aihub.json"}


@settings(max_examples=60)
@given(data=st.data())
def test_any_damage_is_our_error_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = bytearray(zipped({"m/model.onnx": bytes(range(256)) * 4, "m/model.bin": b"abc" * 90}))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    root = tmp_path_factory.mktemp("damaged")
    (root / "download").mkdir()
    (root / "bundle").mkdir()
    (root / "download" / "m.zip").write_bytes(whole)
    with contextlib.suppress(AiHubError):
        lay_out(root / "download" / "m.zip", root / "bundle", "m")
    outside = {path.name for path in root.iterdir()} - {"download", "bundle"}
    assert not outside
