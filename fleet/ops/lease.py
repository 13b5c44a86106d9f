"""Leases on a device: the commands, their answers, and the guard before each step.

Every value is sent as one word of harmless characters, so that it cannot become shell syntax or
break a line of the owner file.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import ClassVar
from urllib.parse import quote, unquote

from fleet.device.shell import device_script, odd_answer
from fleet.model.command import Command, script
from fleet.model.errors import DeviceError
from fleet.model.lease import WRITE, LeaseHolder, Spent, Ticket
from fleet.model.masking import masked

TAG = "fleet-lease 1"
LOST_STATUS = 113  # of the guard; valid only together with its line on standard error
_LOST, _FREED = "fleet-lease-lost", "fleet-lease-freed"
GIVEN_BACK = "the lease was released"
HEAD_BYTES = 1 << 16  # of an answer: the holder is printed before the mark
_WORD_CHARS = 200  # of a reason or owner, which are part of a command line
_WORDS = 10  # of a `held` or `dropped` line


@dataclass
class LeaseAnswer:
    """The answer of the board. `got` is the generation that was acquired.

    `raced` means that several tried at once. `top` is the highest generation of each kind, held or
    not. `spent` are kinds without a further generation.
    """

    place: str = ""
    got: int | None = None
    held: list[LeaseHolder] = field(default_factory=list)
    dropped: list[LeaseHolder] = field(default_factory=list)
    raced: bool = False
    freed: bool = False
    top: dict[str, int] = field(default_factory=dict)
    spent: list[Spent] = field(default_factory=list)


def word(text: str) -> str:
    """Return a text as one word of letters, digits and `=%._~/-`, not empty and without a leading
    dash.
    """
    return "=" + quote(text[:_WORD_CHARS], safe="")


def text_of(coded: str) -> str:
    """Return the text of a word, safe to show: control characters are replaced."""
    plain = unquote(coded.removeprefix("="), errors="replace")
    return "".join(c if c.isprintable() else "\ufffd" for c in plain)


def take_command(
    kind: str,
    owner: str,
    reason: str,
    run_id: str,
    *,
    token: str,
    ttl: int,
    dead: str = "-",
    then: Command | None = None,
) -> Command:
    """Return the command that acquires a lease for `ttl` seconds, even from a `dead` holder.

    `dead` is the `dead_word` of that holder, or "-". After that, the reading command `then` runs in
    the same round trip.
    """
    words = (word(owner), word(reason), word(run_id), token, str(ttl), dead)
    return _lease_script("lease_take", kind, *words, then=then)


def dead_word(holder: LeaseHolder) -> str:
    """Return the name of a holder whose process has ended, so that its lease may be taken over."""
    return f"{holder.generation}:{holder.token}"


def drop_command(owner: str, reason: str, token: str, *, force: bool) -> Command:
    """Return the command that ends the user's own reservation, or with `force` every lease."""
    mode = "force" if force else "-"
    return _lease_script("lease_drop", word(owner), word(reason), token, mode)


def free_command(ticket: Ticket) -> Command:
    """Return the command that releases a write lease."""
    return device_script("lease_free", ticket.folder, str(ticket.generation), ticket.token)


def who_command(then: Command | None = None) -> Command:
    """Return the command that asks for the holders; the reading command `then` runs after it."""
    return _lease_script("lease_who", then=then)


@lru_cache(maxsize=64)
def guard(ticket: Ticket, mode: int | str = 0) -> Command:
    """Return the prefix of a command that runs only while `ticket` holds, and renews the lease.

    During the command the lease holds for at least `mode` seconds, even if the host is gone. `60f`
    releases the lease after success. Without a command, "keep" only renews; "revive" renews also
    after the end of the lease if nobody took over.
    """
    words = (ticket.folder, str(ticket.generation), ticket.token, str(ticket.ttl), str(mode))
    return device_script("lease_guard", *words)


def lost_words(ticket: Ticket, status: int, stderr: str) -> str:
    """Return why the guard refused, for people; "" if it did not."""
    if status != LOST_STATUS:
        return ""
    for line in stderr.splitlines():
        mark, _, rest = line.partition(" ")
        token, _, rest = rest.partition(" ")
        if mark == _LOST and token == ticket.token:
            return _why(ticket, *rest.split(" "))
    return ""


def freed(ticket: Ticket, stderr: str) -> bool:
    """Return True if the guard released the lease after its step."""
    return f"{_FREED} {ticket.token}" in stderr.splitlines()


def _why(ticket: Ticket, kind: str, *line: str) -> str:
    by = ""
    if len(line) >= 5 and line[4] != ticket.token:
        reason = text_of(line[2])
        by = f" {text_of(line[1])}" + (f" ({reason})" if reason else "")
    taken = f"taken by{by}" if by else ""
    if kind == "expired":
        more = f", and the board was {taken}" if taken else ""
        return f"fleet could not renew the lease within {ticket.ttl} s{more}"
    if kind == "released":
        return GIVEN_BACK
    return f"the board was {taken}" if taken else "the lease folder on the board was deleted"


def _lease_cure(why: str) -> str:
    match = re.search(r"(?:^| )(/.*?/fleet-lease)(?=:| |$)(.*)", why)
    if not match:
        return "allow all users to write to the folder, and free disk space (df -h)"
    path = shlex.quote(match[1])
    kept = match[2].startswith(" is ")
    return f"mv {path} {path}.old" if kept else f"chmod 1777 {path}; df -h {path}"


def is_whole(text: str) -> bool:
    """Return True if the answer is complete and so names the holder."""
    return "end" in text.partition(TAG)[2].splitlines()


def parse_lease(text: str, host: str) -> LeaseAnswer:
    """Parse the first answer in `text`, and ignore the text around it.

    Raises DeviceError if it was truncated, or if no lease can be stored on the device.
    """
    lines = text.splitlines()
    start = lines.index(TAG) + 1 if TAG in lines else len(lines)
    if "end" not in lines[start:]:
        raise DeviceError(
            "the device returned only a part of the answer; the answer ends with "
            f"{masked(text)[-200:]!r}",
            device=host,
            step="lease",
            hint="check ~/.profile and ~/.bashrc on the device: these files must not print text "
            "or call exit",
        )
    answer = LeaseAnswer()
    for line in lines[start : lines.index("end", start)]:
        kind, _, rest = line.partition(" ")
        words = rest.split(" ")
        if kind == "failed":
            raise DeviceError(
                "fleet cannot reserve the board for this command, because it cannot write its "
                f"lease folder on the board: {rest}",
                device=host,
                step="lease",
                hint=f"run on the board, as root: {_lease_cure(rest)}; or set FLEET_LEASE_DIR "
                "there to a folder that all users can write to; fleet doctor (checks the folder)",
            )
        if kind == "place":
            answer.place = rest
        elif kind == "got":
            answer.got = _number(words[-1], line, host)
        elif kind == "top" and len(words) == 2:
            answer.top[words[0]] = _number(words[1], line, host)
        elif kind == "spent" and len(words) > 2:
            answer.spent.append(Spent(words[0], " ".join(words[2:]), words[1]))
        elif kind in {"held", "dropped"} and len(words) == _WORDS - 1:
            numbers = _number(words[1], line, host), _number(words[6], line, host)
            holder = _holder(words, *numbers)
            (answer.held if kind == "held" else answer.dropped).append(holder)
        answer.raced = answer.raced or kind == "raced"
        answer.freed = answer.freed or kind == "freed"
    return answer


@dataclass(frozen=True)
class Holders:
    """The holders of a board from a reading command; `problem` is the reason if they are unknown.

    `generation` is that of the last write lease, None if one is held or it is unknown.
    """

    holders: tuple[LeaseHolder, ...] = ()
    problem: str = ""
    generation: int | None = None
    PLAIN: ClassVar[str] = "holders=known notes"

    @property
    def known(self) -> tuple[LeaseHolder, ...] | None:
        """The holders, None if unknown."""
        return None if self.problem else self.holders

    @property
    def notes(self) -> list[str]:
        """A line about each holder, for people."""
        unknown = [f"fleet cannot see who uses the board: {self.problem}"] if self.problem else []
        return [*(f"the board is {holder.describe()}" for holder in self.holders), *unknown]


NOBODY = Holders()


def holders_in(text: str, host: str) -> Holders:
    """Parse the output of `who_command` before the command that followed it. Never raises."""
    try:
        answer = parse_lease(text, host)
    except DeviceError as error:
        return Holders(problem=error.message)
    held = any(holder.kind == WRITE for holder in answer.held)
    return Holders(tuple(answer.held), generation=None if held else answer.top.get(WRITE))


def _number(word: str, line: str, host: str) -> int:
    """Parse a number. fleet's scripts print at most nine digits, because mksh has no more."""
    if not re.fullmatch(r"-?[0-9]{1,9}", word):
        raise odd_answer(line, host)
    return int(word)


def _holder(words: list[str], generation: int, left: int) -> LeaseHolder:
    kind, _, owner, reason, run, token, _, age, busy = words
    return LeaseHolder(
        kind=kind,
        generation=generation,
        owner=text_of(owner),
        reason=text_of(reason),
        run_id=text_of(run),
        token=token,
        left=left,
        age=int(age) if re.fullmatch("[0-9]{1,9}", age) else None,
        busy=busy == "run",
    )


def end_command(base: str) -> Command:
    """Remove what fleet made on a board: its base folder (as in the inventory) and the leases."""
    return _lease_script("session_end", base)


@cache
def _text(name: str) -> str:
    return device_script("lease").argv[2] + device_script(name).argv[2]


def _lease_script(name: str, *args: str, then: Command | None = None) -> Command:
    command = script(_text(name), *args, name=name)
    return command if then is None else command.then(then)
