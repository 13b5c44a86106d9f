"""Device rules that the first event does not apply: another event once, then a stated reboot."""

from __future__ import annotations

from collections.abc import Callable

from fleet.model.events import StepStarted

from .conftest import Bare

Make = Callable[..., Bare]
INSTALL = "apt-get -q update && apt-get -y -q install qcom-fastrpc1 acl libatomic1"
# A board that loses events of these actions.
LOSES = """chmod 600 /dev/fastrpc-* && chown root:root /dev/fastrpc-* && cd /usr/local/bin &&
mv udevadm udevadm.whole && cat > udevadm <<'END'
#!/bin/sh
case " $* " in *" --action={}"*) exit 0 ;; *--action=change*) set -- trigger --action=add ;; esac
exec /usr/local/bin/udevadm.whole "$@"
END
chmod 755 udevadm"""


def steps(board: Bare) -> list[str]:
    return [
        event.text
        for event in board.events
        if isinstance(event, StepStarted) and event.text.startswith("apply udev rules")
    ]


def test_what_the_event_add_does_not_reach_is_tried_by_change_once(bare: Make) -> None:
    board = bare("bare-evk-nopasswd")
    board.root(f"{INSTALL} && {LOSES.format('add')}")
    playbook = board.spec(fastrpc="auto", packages=("libatomic1",))
    result = board.operation(playbook).provision()[0]
    assert result.error is None, result.error
    assert len(steps(board)) == 2
    assert steps(board)[1].endswith("with the udev event change")
    assert board.operation(playbook).provision()[0].outcome == "unchanged"


def test_a_board_that_waits_for_a_reboot_is_left_alone_and_says_so(bare: Make) -> None:
    board = bare("bare-evk-nopasswd")
    board.root(f"{INSTALL} && {LOSES.format('')}")
    playbook = board.spec(fastrpc="auto")
    first = board.operation(playbook).provision()[0]
    assert "a reboot applies the rules" in first.text
    assert len(steps(board)) == 2
    board.events.clear()
    before = board.tree()
    second = board.operation(playbook).provision()[0]
    assert (second.outcome, steps(board)) == ("refused", [])
    assert "a reboot applies the rules" in second.text
    assert "--allow-reboot" in second.error.hint  # type: ignore[union-attr]
    assert board.tree() == before


def test_the_reboot_that_is_offered_ends_it(bare: Make) -> None:
    board = bare("bare-evk-nopasswd")
    board.root(f"{INSTALL} && {LOSES.format('')}")
    board.operation(board.spec(fastrpc="auto")).provision()
    board.root("mv /usr/local/bin/udevadm.whole /usr/local/bin/udevadm")
    playbook = board.spec(fastrpc="auto", reboot=True)
    result = board.operation(playbook, allow_reboot=True).provision()[0]
    assert result.error is None, result.error
    assert board.operation(playbook, allow_reboot=True).provision()[0].outcome == "unchanged"


def test_rights_that_were_lost_again_are_given_by_the_first_event(bare: Make) -> None:
    board = bare("bare-evk-nopasswd")
    playbook = board.spec(fastrpc="auto", packages=("libatomic1",))
    assert board.operation(playbook).provision()[0].outcome == "changed"
    board.root("chmod 600 /dev/fastrpc-*; chown root:root /dev/fastrpc-*")
    board.events.clear()
    assert board.operation(playbook).provision()[0].outcome == "changed"
    assert steps(board) == ["apply udev rules to fastrpc-*"]
