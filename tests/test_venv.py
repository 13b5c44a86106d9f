"""`.ci/venv.sh`: what an interrupted run left is made again; what is whole, or another's, stays."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Stands for Python: makes an environment with itself in it, and pip "installs" into a log.
PYTHON = r"""#!/bin/sh
here=${0%/*}
case "$*" in
  -V) echo Python 3.11.0 ;;
  -I\ *) exit ${LACKS:-0} ;;
  "-m venv "*)
    mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && [ -z "${KILLED-}" ] && : > "$3/pip" ;;
  "-m ensurepip") : > "$here/../pip" ;;
  "-m pip --version") [ -e "$here/../pip" ] ;;
  "-m pip install "*) echo "$*" >> "$here/../installed"; [ -z "${FAILS-}" ] ;;
esac
"""


class Clone:
    """The script in a folder of its own, and the environment that it makes."""

    def __init__(self, folder: Path) -> None:
        self.venv = folder / "own env"
        self.mark = self.venv / ".unfinished"
        self._python = folder / "python3"
        self._python.write_text(PYTHON)
        self._python.chmod(0o755)

    def make(self, what: str = "install", **env: str) -> subprocess.CompletedProcess[str]:
        argv = ["sh", str(ROOT / ".ci/venv.sh"), str(self._python), str(self.venv), what]
        return subprocess.run(
            argv, env={**os.environ, **env}, capture_output=True, text=True, check=False
        )

    def installed(self) -> list[str]:
        return (self.venv / "installed").read_text().splitlines()


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def whole(clone: Clone) -> None:
    assert (clone.venv / ".installed").exists()
    assert not clone.mark.exists()


def test_a_whole_one_is_kept_and_installed_into_again(clone: Clone) -> None:
    assert clone.make().returncode == 0
    whole(clone)
    (clone.venv / "mine").touch()
    assert clone.make().returncode == 0
    assert clone.make("dev").returncode == 0
    whole(clone)
    assert (clone.venv / "mine").exists()
    files = [line.rpartition("/")[2] for line in clone.installed() if "--require-hashes" in line]
    assert files == ["install.txt", "install.txt", "dev.txt"]


@pytest.mark.parametrize("left", ["KILLED", "FAILS"])
def test_what_failed_is_made_again(clone: Clone, left: str) -> None:
    assert clone.make(**{left: "1"}).returncode != 0
    assert not (clone.venv / ".installed").exists()
    done = clone.make()
    assert (done.returncode, "repairing" in done.stderr) == (0, True), done.stderr
    whole(clone)
    assert len(clone.installed()) == 2, "nothing of the first try"


def test_one_without_pip_from_before_is_made_again(clone: Clone) -> None:
    clone.make(KILLED="1")
    clone.mark.unlink()
    assert clone.make().returncode == 0
    whole(clone)


def test_one_that_uv_made_gets_pip_and_stays(clone: Clone) -> None:
    clone.make(KILLED="1")
    clone.mark.unlink()
    (clone.venv / "pyvenv.cfg").write_text("home = /usr/bin\nuv = 0.5\n")
    (clone.venv / "mine").touch()
    assert clone.make().returncode == 0
    whole(clone)
    assert (clone.venv / "mine").exists()


def test_what_is_missing_is_said_before_anything_is_made(clone: Clone) -> None:
    assert clone.make(LACKS="1").returncode == 1
    assert not clone.venv.exists()


def test_dev_over_an_interrupted_one_installs_both(clone: Clone) -> None:
    clone.make()
    clone.make("dev", FAILS="1")
    assert clone.make("dev").returncode == 0
    whole(clone)
    assert (clone.venv / ".installed-dev").exists()
    assert "install.txt" in "".join(clone.installed())


def test_make_forgets_an_environment_whose_python_is_gone(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / ".installed").touch()
    argv = ["make", "-n", "VENV=v", "clean"]
    subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True)
    assert not (tmp_path / "v" / ".installed").exists()
