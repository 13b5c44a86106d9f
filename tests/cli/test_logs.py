"""`fleet logs` of real boards: what is there, and what cannot be read, which is said."""

from __future__ import annotations

from fleet.engine.everyday.logs import _rows

from .desk import Desk


def test_the_service_of_a_board_and_what_the_other_one_lacks(desk: Desk) -> None:
    log = desk.folder / "base1" / "serve" / "chat" / "log"
    log.parent.mkdir(parents=True)
    log.write_text("one\ntwo \x1b[2Jred\nthree\n")
    done = desk.fleet("ann", "logs", "--kind", "service", "-n", "2")
    assert done.returncode == 1
    assert done.stdout == "evk-1 service: two red\nevk-1 service: three\n"
    assert f"evk-2 service: no service has a log in {desk.folder}/base2/serve" in done.stderr


def test_no_kind_is_silently_empty(desk: Desk) -> None:
    done = desk.fleet("ann", "logs", "-l", "evk-1", "--since", "2h", "-n", "5")
    said = done.stdout + done.stderr
    for kind in ("journal", "dmesg", "service"):
        assert f"evk-1 {kind}: " in said, said
    assert "logcat" not in said
    asked = desk.fleet("ann", "logs", "-l", "evk-1", "--kind", "logcat")
    assert asked.returncode == 1
    assert "evk-1 logcat: the device has no program logcat" in asked.stderr
    assert "fleet cannot read these logs of the device: logcat" in asked.stderr


def test_since_cuts_the_messages_of_the_kernel_by_the_time_of_the_boot() -> None:
    text = (
        "uptime 100.00\ndmesg | [   10.5] old\ndmesg |  its second line\n"
        "dmesg | [   95.0] new\njournal | x\nend\n"
    )
    said = [line for _, _, line in _rows(text, 10)]
    assert said == ["[   95.0] new", "x"]
    assert len(list(_rows(text, None))) == 4
