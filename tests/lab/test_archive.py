"""Where apt of the lab gets packages, and what of the host's settings it takes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from fleet.lab import archive
from fleet.lab.archive import Archive, mirror, sources, unpack

DEB822 = (
    "Types: deb\n# URIs: http://no.example/debian\nURIs: https://a.example/debian/\nSuites: x\n"
)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("sources.list", "deb http://b.example/debian trixie main\n", "http://b.example/debian"),
        (
            "sources.list",
            "deb [arch=amd64] http://b.example/x/debian/ y z",
            "http://b.example/x/debian",
        ),
        ("sources.list.d/debian.sources", DEB822, "https://a.example/debian"),
        ("sources.list.d/debian.list.off", "deb http://b.example/debian x y\n", archive.MIRROR),
        ("sources.list", "# deb http://b.example/debian x y\n", archive.MIRROR),
        ("sources.list", "deb http://archive.ubuntu.com/ubuntu noble main\n", archive.MIRROR),
        ("sources.list", "deb http://b.example/debian-security x y\n", archive.MIRROR),
    ],
)
def test_the_mirror_is_the_one_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, found: str
) -> None:
    monkeypatch.setattr(archive, "_APT", tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    assert mirror() == found


def test_security_updates_of_a_release_come_from_debian(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "_APT", tmp_path)
    lines = sources(["bookworm main", "trixie-backports contrib", "sid main"]).splitlines()
    assert [line.split()[-2:] for line in lines] == [
        ["bookworm", "main"], ["trixie-backports", "contrib"], ["sid", "main"],
        ["bookworm-security", "main"],
    ]  # fmt: skip


def test_hooks_of_the_host_do_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its proxies are taken; what it does after an update is its own business."""
    host = tmp_path / "apt.conf"
    host.write_text(
        'Acquire::http::Proxy "http://proxy.example:1";\n'
        f'APT::Update::Pre-Invoke {{ "touch {tmp_path}/ran"; }};\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(host))
    monkeypatch.setattr(archive, "sources", lambda _: "")
    own = Archive(tmp_path / "own", ["bookworm main"])
    own._write()
    own._apt("update")
    assert not (tmp_path / "ran").exists()
    env = {**os.environ, "APT_CONFIG": str(tmp_path / "own/apt.conf")}
    dump = subprocess.run(
        ["apt-config", "dump"], env=env, capture_output=True, text=True, check=True
    )
    assert 'Acquire::http::Proxy "http://proxy.example:1";' in dump.stdout
    assert "Pre-Invoke" not in dump.stdout


def test_a_package_that_was_cut_is_an_error(tmp_path: Path) -> None:
    deb = tmp_path / "cut.deb"
    deb.write_bytes(b"!<arch>\ndebian-binary")
    with pytest.raises(subprocess.CalledProcessError):
        unpack([deb], tmp_path / "tree")
