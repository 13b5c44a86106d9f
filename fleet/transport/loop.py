"""Several commands over one channel: the shell that runs one after another, and its frames.

A login shell may take a tenth of a second to start (pyenv, conda, nvm in ~/.bashrc), and each
channel starts one. So one channel runs a constant loop of `sh`, which reads requests from standard
input. Output and errors stay the two streams of the channel: of each command they stand between
marks with a word that the device drew, which no program that runs there is told. The last request
takes the place of the loop, with what is left of standard input: from there on it is a channel as
any other.
"""

from __future__ import annotations

from collections.abc import Callable

from fleet.model.command import Command
from fleet.transport.quote import quoted, render

_HEAD = b"\x1efleet "
_WORD = 36  # letters of a UUID
_NOISE = 400
_LETTERS = b"0123456789abcdef-"
# The first command stands in the line itself, so that it costs no round trip more. Where there is
# no word to be drawn, or nothing comes in, the line is that command and nothing else.
_LOOP = f"""unset fl_m fl_k fl_h fl_n fl_l fl_t fl_s
read -r fl_m 2>/dev/null </proc/sys/kernel/random/uuid || exec "$@" </dev/null
fl_m="{_HEAD.decode()}$fl_m" fl_k=0
echo "$fl_m"
echo "$fl_m" >&2
"$@" </dev/null
while
  fl_s=$?
  echo "$fl_m $fl_k $fl_s" || exit 255
  echo "$fl_m $fl_k $fl_s" >&2
  IFS=" " read -r fl_k fl_h fl_n
do
  fl_t=
  while [ "$fl_n" -gt 0 ]; do
    IFS= read -r fl_l || exit 0
    fl_t="$fl_t$fl_l
"
    fl_n=$((fl_n - 1))
  done
  echo "$fl_m $fl_k" || exit 0
  echo "$fl_m $fl_k" >&2
  case $fl_h in last) eval "exec $fl_t" ;; esac
  eval "$fl_t" </dev/null
done
exit "$fl_s"
"""


def line(command: Command | None = None) -> str:
    """The line of a channel whose shell waits for requests, once it has run `command`."""
    start = quoted("sh", "-c", _LOOP, "fleet")
    return start if command is None else f"{start} {_text(command)}"


def request(number: int, command: Command, *, last: bool = False) -> bytes:
    """A further command; the `last` one gets what follows as its standard input."""
    text = (render(command) if last else _text(command)) + "\n"
    head = f"{number} {'last' if last else 'next'} {text.count(chr(10))}\n"
    return (head + text).encode("utf-8", "surrogateescape")


def _text(command: Command) -> str:
    """The loop stays to tell of a signal. Words that a shell does itself are not for the loop."""
    return render(command, bare=command.argv[0] == "sh")


class Framed:
    """What one command says on one of the two streams: passed on without the marks around it.

    `word` is that of the loop, b"" until it has said it; what a login shell prints before that is
    passed on for the first command. `begun` by the mark before the command, `status` by the one
    behind it, which the `last` one has not. `spilled`: something came behind that.
    """

    def __init__(
        self,
        forward: Callable[[bytes], object],
        number: int = 0,
        word: bytes = b"",
        *,
        last: bool = False,
    ) -> None:
        self._forward = forward
        self._number, self._last = number, last
        self._held = b""
        self.word = word
        self.begun = False
        self.status: int | None = None
        self.spilled = False
        self.noise = b""  # the end of what came before the command

    def __call__(self, chunk: bytes) -> bool:
        """One chunk; True behind the mark at the end."""
        data, self._held = self._held + chunk, b""
        while self.status is None and not (self._last and self.begun):
            mark = self._mark()
            place = data.find(mark)
            if place < 0:
                self._hold(data, len(data) - _overlap(data, mark))
                return False
            rest, newline, behind = data[place + len(mark) :].partition(b"\n")
            if not newline and len(rest) <= _WORD:
                self._hold(data, place)
                return False
            if newline and self._means(rest):
                self._pass(data[:place])
                self._take(rest)
                data = behind
            else:
                self._pass(data[: place + 1])
                data = data[place + 1 :]
        if self.status is None:
            self._pass(data)
            return False
        self.spilled = self.spilled or bool(data)
        return True

    def close(self) -> None:
        """The stream has ended: what may have been the beginning of a mark was none."""
        self._hold(self._held, len(self._held))

    def _mark(self) -> bytes:
        if not self.word:
            return _HEAD
        return b"%b%b %d" % (_HEAD, self.word, self._number) + b" " * self.begun

    def _means(self, rest: bytes) -> bool:
        if not self.word:
            return len(rest) == _WORD and not rest.strip(_LETTERS)
        return rest.isdigit() if self.begun else not rest

    def _take(self, rest: bytes) -> None:
        if not self.word:
            self.word, self.begun = rest, not self._number
        elif self.begun:
            self.status = int(rest)
        else:
            self.begun = True

    def _hold(self, data: bytes, place: int) -> None:
        self._pass(data[:place])
        self._held = data[place:]

    def _pass(self, data: bytes) -> None:
        if self.begun or not self._number:
            if data:
                self._forward(data)
        else:
            self.noise = (self.noise + data)[-_NOISE:]


def _overlap(data: bytes, mark: bytes) -> int:
    """How many bytes at the end of `data` may be the beginning of `mark`."""
    place = data.rfind(mark[:1], max(0, len(data) - len(mark) + 1))
    return len(data) - place if place >= 0 and mark.startswith(data[place:]) else 0
