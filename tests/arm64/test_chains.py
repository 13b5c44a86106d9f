"""Each state of a board, in the words of Qualcomm's own AARCH64 libraries, and its cause.

The CPU is qemu's, the chip's id is a file and there is no DSP: emulated. What is real: the loader,
the device nodes, Debian's libcdsprpc, QAIRT's libraries and all that they log.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fleet.triage.triage import triage
from tests.support_runtime import NEW, OLD, X86

from .machine import (
    FASTRPC,
    HTP,
    NO_CHIP,
    SDK_LIB,
    SM8550,
    STUB,
    Board,
    Parts,
    Said,
    require,
)

pytestmark = [pytest.mark.slow, pytest.mark.root, pytest.mark.qairt]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    require()
    return Parts(tmp_path_factory.mktemp("arm64"))


@pytest.fixture
def board(parts: Parts, tmp_path: Path) -> Board:
    return Board(tmp_path, parts)


def causes(text: str) -> list[str]:
    return [one.cause.id for one in triage(text).causes]


def twins(text: str) -> set[str]:
    """What the most likely cause may be mistaken for."""
    return {one.cause for one in triage(text).causes[0].cause.twins}


def complaints(said: Said) -> list[str]:
    return [one for one in said.log.splitlines() if one.startswith(("<E>", "<W>"))]


def told(said: Said, code: int, step: str = "deviceCreate") -> None:
    """The code stands in Qualcomm's own lines, and is what the call of QNN gave."""
    assert re.search(rf"\b({code}|0x{code:x})\b", said.log), said.all
    answer = json.loads(said.qnn.rpartition("fleet-session ")[2])
    assert said.status == 0
    assert answer["build"].startswith(f"v{NEW}.")
    assert answer["steps"][-1][:2] == [step, code]


def test_a_board_that_lacks_nothing_but_a_dsp(board: Board) -> None:
    """The control: the chain goes past every file and node, up to where a DSP would answer."""
    said = board.session()
    told(said, 14001)
    assert "Detected Snapdragon SOC QCS9100" in said.log
    assert "errno Function not implemented" in said.qnn, "what libcdsprpc tells syslog alone"
    assert "qnn_open failed, 0x00000068" in said.log
    assert causes(said.all)[0] == "fastrpc-open-failed"


def test_no_libcdsprpc(board: Board) -> None:
    board.without(FASTRPC)
    board.without(f"{FASTRPC}.1")
    said = board.session()
    told(said, 14001)
    assert f"Failed in loading stub: {FASTRPC}: cannot open shared object" in said.log
    assert causes(said.all)[0] == "fastrpc-userspace-missing"


def test_libcdsprpc_without_its_plain_name(board: Board) -> None:
    board.without(FASTRPC)
    said = board.session()
    told(said, 14001)
    assert f"Failed in loading stub: {FASTRPC}: cannot open shared object" in said.log
    assert causes(said.all)[0] == "fastrpc-userspace-missing"


def test_an_old_libcdsprpc(board: Board, parts: Parts) -> None:
    (board.system / FASTRPC).hardlink_to(parts.old_fastrpc())
    said = board.session()
    told(said, 14001)
    assert "undefined symbol: dspqueue_read" in said.log
    assert causes(said.all)[0] == "vendor-fastrpc-too-old"


def test_no_stub(board: Board) -> None:
    (board.lib / STUB).unlink()
    said = board.session()
    told(said, 14001)
    assert f"Failed in loading stub: {STUB}: cannot open shared object" in said.log
    assert causes(said.all)[0] == "stub-not-found"


def test_off_the_search_path_the_stub_is_blamed_for_libcdsprpc(board: Board) -> None:
    """QNN shows the reason of its second try only: word for word the log of an absent stub."""
    alone = board.session(search="/srv")
    assert "qnn_open failed, 0x00000068" in alone.log, "the path alone is no fault: 1st try"
    board.without(FASTRPC)
    said = board.session(search="/srv")
    told(said, 14001)
    (board.lib / STUB).unlink()
    assert complaints(said) == complaints(board.session())
    assert causes(said.all)[0] == "stub-not-found"
    assert "fastrpc-userspace-missing" in twins(said.all)


def test_off_the_search_path_by_name(board: Board) -> None:
    """A program that names libQnnHtp.so without a folder: the loader speaks, QNN cannot."""
    said = board.session(search="/srv", library=HTP)
    assert complaints(said) == [
        f"<E> {HTP}: cannot open shared object file: No such file or directory"
    ]
    assert causes(said.all)[0] == "host-lib-missing"


def test_the_stub_of_another_build(board: Board, parts: Parts) -> None:
    board.replace(STUB, parts.qairt(STUB, OLD))
    said = board.session()
    told(said, 1008)
    assert re.search(rf"expected \(v{NEW}\.\d+\), detected \(v{OLD}\.\d+\)", said.log)
    assert causes(said.all)[0] == "stub-skel-version-mismatch"


@pytest.mark.parametrize(
    ("mode", "words", "cause"),
    [
        ("", "errno No such file or directory", "fastrpc-node-missing"),
        ("0600", "errno Permission denied", "fastrpc-node-permission"),
    ],
)
def test_a_node_that_does_not_open(board: Board, mode: str, words: str, cause: str) -> None:
    """QNN's log is one and the same for both; the errno beside it tells them apart."""
    said = board.session(node=mode)
    told(said, 14001)
    assert "qnn_open failed, 0x00000072" in said.log
    assert set(causes(said.log)[:2]) == {"fastrpc-node-missing", "fastrpc-node-permission"}
    assert words in said.qnn
    assert causes(said.all)[0] == cause


def test_a_chip_that_qnn_does_not_know(board: Board) -> None:
    board.chip(NO_CHIP)
    said = board.session()
    told(said, 4000, "backendCreate")
    assert "No Snapdragon SOC detected" in said.log
    assert causes(said.all)[0] == "soc-unknown"


def test_a_chip_that_this_build_refuses(board: Board) -> None:
    board.chip(SM8550)
    said = board.session()
    told(said, 14002)
    assert "Unsupported SoC model (SnapdragonModel): 43" in said.log
    assert causes(said.all)[0] == "soc-unknown"


@pytest.mark.parametrize(
    ("folder", "first"),
    [(SDK_LIB, {"host-lib-missing", "abi-mismatch"}), ("opt/npu", {"host-lib-missing"})],
    ids=["in the SDK's folder", "in a folder that does not say its machine"],
)
def test_an_x86_64_library(board: Board, parts: Parts, folder: str, first: set[str]) -> None:
    """The loader says of a file that is there that it is not: the words of an absent file."""
    board.replace(HTP, parts.qairt(HTP, NEW, X86))
    (board.layer / "opt/npu").symlink_to(f"/{SDK_LIB}")
    said = board.session(search=f"/{folder}", library=f"/{folder}/{HTP}")
    assert complaints(said) == [
        f"<E> /{folder}/{HTP}: cannot open shared object file: No such file or directory"
    ]
    assert set(causes(said.all)[:2]) == first
    assert causes(said.all)[0] == "abi-mismatch" or "abi-mismatch" in twins(said.all)


@pytest.mark.parametrize(("kept", "words"), [(40, "file too short"), (3_000_000, "Bus error")])
def test_a_library_that_was_cut(board: Board, kept: int, words: str) -> None:
    board.replace(HTP, (board.lib / HTP).read_bytes()[:kept])
    said = board.session()
    assert words in said.all
    assert causes(said.all)[0] == "library-damaged"
