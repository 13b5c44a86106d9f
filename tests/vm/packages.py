"""What the machine's repository offers: Debian's own packages, repacked for its architecture.

Rules, units, group and scripts are the real ones byte for byte, those of older versions as
tests/contract/versions.py makes them; programs and libraries are stand-ins (emulated).
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

from fleet.lab import kinds as lab
from fleet.lab.debs import LIB, UNITS, Deb, debian
from fleet.lab.elf import fastrpc_library
from fleet.lab.kinds import REPOSITORY, bare_tree
from fleet.lab.rootfs import rootfs
from tests.contract.package import TEXTS, of_archive
from tests.contract.pinned import SUITES, SUPPORT, pinned, support_deb
from tests.contract.versions import texts_of

SEVEN, EIGHT = "trixie-backports", "sid"
_SLEEP = b"#!/bin/sh\nexec sleep infinity\n"
_SYSUSERS = re.compile(r"# Automatically added by dh_installsysusers.*?\n# End .*?\n", re.DOTALL)
# The events of qualcomm/fastrpc debian/fastrpc-support.postinst at 2e290df.
_EVENTS = """
udevadm control --reload-rules
for f in $(find /dev -name 'fastrpc-*'); do
  udevadm trigger --subsystem-match=misc --action=add --name-match=$f || true
done
udevadm trigger --subsystem-match=dma_heap --action=add || true"""


def repository(version: str, folder: Path) -> Path:
    """Packages of a version, "1.0.4" to "1.0.8" or "ppa", and what the lab has beside them."""
    folder.mkdir(parents=True)
    source = bare_tree() / REPOSITORY.lstrip("/") / ("debian" if version != "ppa" else "")
    for name in ("hexagon-dsp-binaries", "libqnn1"):
        for path in source.rglob(f"{name}*.deb"):
            shutil.copy(path, folder)
    debs = {"1.0.4": [image()], "ppa": ppa()}.get(version, [])
    if not debs:
        suite = EIGHT if version == "1.0.8" else SEVEN
        number = "1.0.6-1" if version == "1.0.6" else SUITES[suite][1]
        repacked(support_deb(suite), folder / f"{SUPPORT}.deb", number)
        debs = [replace(deb, version=number) for deb in debian(suite) if deb.name == "libfastrpc1"]
    acl = replace(lab.repack(rootfs(), "acl"), depends="libacl1")  # bookworm's wants that one's
    for deb in (*debs, acl, Deb("libatomic1", "14.2.0-19")):
        (folder / deb.file_name).write_bytes(deb.build())
    index(folder)
    return folder


def repacked(deb: Path, out: Path, number: str) -> None:
    """The same package for amd64, its programs asleep; of 1.0.6-1 what its changelog says."""
    tree = out.with_suffix("")
    subprocess.run(["dpkg-deb", "-R", str(deb), str(tree)], check=True)
    control, postinst = tree / "DEBIAN/control", tree / "DEBIAN/postinst"
    text = control.read_text().replace("Architecture: arm64", "Architecture: amd64")
    text = re.sub(r", (?:libc6 \([^)]*\)|libyaml-0-2)", "", text)
    if number == "1.0.6-1":
        text = re.sub("Version: .*", f"Version: {number}", text)
        text = re.sub("Depends: .*\n", "", text, count=1)
        postinst.write_text(_SYSUSERS.sub("", postinst.read_text()))
        there = of_archive(deb).files
        texts = texts_of("1.0.6", there)
        for path in (path for path in there if path.startswith(TEXTS)):
            (tree / path[1:]).unlink() if path not in texts else (tree / path[1:]).write_text(
                texts[path]
            )
    control.write_text(text)
    (tree / "DEBIAN/md5sums").unlink()
    for file in (file for file in tree.rglob("*") if file.is_file() and not file.is_symlink()):
        if file.read_bytes().startswith(b"\x7fELF"):
            file.write_bytes(_SLEEP)
    subprocess.run(["dpkg-deb", "-b", "--root-owner-group", str(tree), str(out)], check=True)
    shutil.rmtree(tree)


def image() -> Deb:
    """As meta-qcom puts 1.0.4 into an image: plain library names, enabled units, no rules."""
    real = pinned(SEVEN)[SUPPORT]
    units = {
        path.replace("/usr/lib/systemd/system", UNITS): text.encode()
        for path, text in texts_of("1.0.4", real.files).items()
    }
    programs = dict.fromkeys((f"/usr/bin/{name}dsprpcd" for name in "acgs"), _SLEEP)
    names = " ".join(path.rpartition("/")[2] for path in units)
    return Deb(
        "lab-image",
        "1.0.4",
        {
            f"{LIB}/libcdsprpc.so.1.0.0": fastrpc_library("libcdsprpc.so.1"),
            f"{LIB}/libcdsprpc.so.1": "libcdsprpc.so.1.0.0",
            f"{LIB}/libcdsprpc.so": "libcdsprpc.so.1",
            **programs,
            **units,
        },
        postinst=f"ldconfig\nsystemctl daemon-reload\nsystemctl enable --now {names}",
        modes=dict.fromkeys(programs, 0o755),
    )


def ppa() -> list[Deb]:
    """The lab's packages of the PPA, with what the source of its time does after unpacking."""
    return [
        replace(deb, postinst=deb.postinst + _EVENTS) if deb.name == "qcom-fastrpc1" else deb
        for deb in lab.ubuntu_ppa()
    ]


def index(folder: Path) -> None:
    """What apt reads of a flat repository."""
    stanzas = []
    for path in sorted(folder.glob("*.deb")):
        fields = subprocess.run(["dpkg-deb", "-f", str(path)], capture_output=True, check=True)
        data = path.read_bytes()
        end = f"Filename: ./{path.name}\nSize: {len(data)}\nSHA256: "
        stanzas.append(fields.stdout.decode() + end + hashlib.sha256(data).hexdigest() + "\n")
    (folder / "Packages").write_text("\n".join(stanzas))
