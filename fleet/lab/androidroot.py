"""The root of a lab phone: Debian's adbd, mksh and toybox in the layout of Android. 30 MB.

It has no bionic with linker namespaces, no SELinux, no FUSE on /sdcard, and no services behind
`dumpsys`. Measured differences: docs/lab.md.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from importlib.resources import files
from pathlib import Path

from fleet.lab.archive import Archive, run, unpack
from fleet.lab.rootfs import APT, building, built_once, cache_dir, downloads

SUITE = "trixie"  # the first Debian with adbd (34.0.5)
PACKAGES = (
    *("adbd", "toybox", "mksh", "original-awk", "dash", "coreutils", "gzip", "grep", "libc-bin"),
    *("libatomic1", "libstdc++6"),
)
NEEDS = {**APT, "unshare": "util-linux", "ldconfig": "libc-bin"}
ADBD = "/usr/lib/android-sdk/platform-tools/adbd"
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
# Programs that come from Debian packages other than toybox. Debian's toybox does not have them, or
# has slow ones: Android's toybox hashes with BoringSSL, Debian's with plain C (100 MB/s).
_PROGRAMS = ("dd", "gzip", "grep", "tr", "sha256sum", "mksh", "toybox")
_EXTRA = ("libatomic.so.1", "libstdc++.so.6", "libgcc_s.so.1", "libdl.so.2", "libpthread.so.0")
_NOT_ANDROID = {"su", "login", "httpd", "uname", *_PROGRAMS}
_USERS = "root:x:0:0:root:/:/system/bin/sh\nshell:x:2000:2000:shell:/:/system/bin/sh\n"
_GROUPS = {"root": 0, "system": 1000, "input": 1004, "log": 1007, "adb": 1011, "shell": 2000}


def android_root() -> Path:
    """Return the cached tree. Build it first if it is missing. Needs root.

    The tree is built under a temporary name and renamed at the end. Raises LabError if tools are
    missing or the build fails.
    """
    folder = files("fleet.lab") / "android"
    scripts = {script.name: script.read_bytes() for script in folder.iterdir()
               if script.name != "__init__.py" and script.is_file()}  # fmt: skip
    recipe = repr((SUITE, PACKAGES, _PROGRAMS, sorted(scripts.items()), _GROUPS, 2))
    name = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    target = cache_dir() / "lab" / f"android-{name}"
    return built_once(target, NEEDS, lambda place: _build(place, scripts))


def _build(target: Path, scripts: dict[str, bytes]) -> None:
    debian = target.with_name(f"{target.name}.debian")
    hint = "fleet lab up --phone-kind phone-emulator (needs no Debian packages)"
    shutil.rmtree(debian, ignore_errors=True)
    try:
        with building(target, "the phone's root", hint) as part:
            _extract(debian)
            _lay_out(part)
            _programs(debian, part)
            for name, text in scripts.items():
                place = part / "system" / "bin" / name
                place.write_bytes(text)
                place.chmod(0o755)
            _run(["ldconfig", "-r", str(part)])
    finally:
        shutil.rmtree(debian, ignore_errors=True)


def python_layer() -> Path:
    """Return the cached tree of a python3, a layer above the phone's root. Raises LabError."""
    target = cache_dir() / "lab" / f"android-python3-{SUITE}-1"
    return built_once(target, NEEDS, _build_python)


def _build_python(target: Path) -> None:
    debian = target.with_name(f"{target.name}.debian")
    shutil.rmtree(debian, ignore_errors=True)
    try:
        with building(
            target, "the python3 of lab phones", "check that apt-get update works"
        ) as part:
            _extract(debian, ("python3",))
            (part / "usr/bin").mkdir(parents=True)
            (part / "system/bin").mkdir(parents=True)
            for path in (debian / "usr/bin").glob("python3*"):
                shutil.copy2(path, part / "usr/bin", follow_symlinks=False)
            (part / "system/bin/python3").symlink_to("/usr/bin/python3")
            versions = [path.relative_to(debian) for path in debian.glob("usr/lib/python3.*")]
            for name in (Path("usr/lib/python3"), *versions, Path(_LIBRARIES)):
                shutil.copytree(debian / name, part / name, symlinks=True)
    finally:
        shutil.rmtree(debian, ignore_errors=True)


def _run(argv: list[str]) -> str:
    return run(argv, env={**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"})


def _extract(debian: Path, packages: tuple[str, ...] = PACKAGES) -> None:
    """Unpack the packages without running their scripts."""
    archive = Archive(downloads(debian), [f"{SUITE} main"])
    unpack(archive.download(packages), debian)
    archive.remove()


def _lay_out(root: Path) -> None:
    for name in (
        *("system/bin", "system/lib64", "system/etc", "vendor/lib64", "vendor/lib/rfsa/adsp"),
        *("data/local/tmp", "sdcard", "proc", "sys", "dev", "run", "etc", "tmp", "mnt", "apex"),
        *("usr/lib64", f"{_LIBRARIES}/android", "usr/bin", str(Path(ADBD).parent).lstrip("/")),
    ):
        (root / name).mkdir(parents=True)
    for link, place in (
        *(("bin", "/system/bin"), ("sbin", "/system/bin"), ("lib", "usr/lib")),
        ("lib64", "usr/lib64"),
    ):
        (root / link).symlink_to(place)
    (root / "etc/passwd").write_text(_USERS, "utf-8")
    groups = "".join(f"{name}:x:{number}:\n" for name, number in _GROUPS.items())
    (root / "etc/group").write_text(groups, "utf-8")
    (root / "etc/ld.so.conf").write_text(f"/{_LIBRARIES}\n", "utf-8")
    for name in ("data", "data/local", "data/local/tmp"):
        (root / name).chmod(0o771)
        os.chown(root / name, 2000, 2000)


def _programs(debian: Path, root: Path) -> None:
    for name in _PROGRAMS:
        _copy(debian, f"/usr/bin/{name}", root / "system" / "bin" / name)
    _copy(debian, "/usr/bin/original-awk", root / "system" / "bin" / "awk")
    _copy(debian, ADBD, root / ADBD.lstrip("/"))
    for name in _EXTRA:
        shutil.copy(debian / _LIBRARIES / name, root / _LIBRARIES / name)
    for applet in _run(["chroot", str(debian), "/usr/bin/toybox"]).split():
        place = root / "system" / "bin" / applet
        if applet not in _NOT_ANDROID and not place.exists():
            place.symlink_to("toybox")
    (root / "system/bin/sh").symlink_to("mksh")
    (root / "usr/bin/env").symlink_to("/system/bin/env")


def _copy(debian: Path, program: str, target: Path) -> None:
    """Copy a program and the libraries that its loader lists."""
    shutil.copy(debian / program.lstrip("/"), target)
    target.chmod(0o755)
    loader = "/lib64/ld-linux-x86-64.so.2"
    listed = _run(["chroot", str(debian), loader, "--list", program])
    for path in {loader, *re.findall(r"(/\S+) \(0x", listed)}:
        place = root_of(target) / path.lstrip("/")
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(debian / path.lstrip("/"), place)


def root_of(path: Path) -> Path:
    """Return the phone's root that contains this path."""
    return next(parent for parent in path.parents if parent.name.endswith(".part"))
