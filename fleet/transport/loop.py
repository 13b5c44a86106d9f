"""Several commands over one channel: a shell loop that runs one after another, and its frames.

A login shell may take 0.1 s to start (pyenv, conda, nvm in ~/.bashrc), and each channel starts one.
Therefore one channel runs a constant loop of `sh`, which reads requests from standard input. The
output of each command is framed by marks on both streams. A mark contains a random word from the
device that the started programs do not get. The last request replaces the loop and gets the rest of
standard input, as on any other channel.
"""

from __future__ import annotations

from collections.abc import Callable

from fleet.model.command import Command
from fleet.transport.quote import quoted, render

_HEAD = b"\x1efleet "
_WORD = 36  # letters of a UUID
_NOISE = 400
_LETTERS = b"0123456789abcdef-"
# The line itself contains the first command, which saves a round trip. Without a random word or
# input, the line runs only that command.
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
    """Return the line of a channel whose shell runs `command` and then waits for requests."""
    start = quoted("sh", "-c", _LOOP, "fleet")
    return start if command is None else f"{start} {_text(command)}"


def request(number: int, command: Command, *, last: bool = False) -> bytes:
    """Return the text of a further request. The `last` command gets the rest of standard input."""
    text = (render(command) if last else _text(command)) + "\n"
    head = f"{number} {'last' if last else 'next'} {text.count(chr(10))}\n"
    return (head + text).encode("utf-8", "surrogateescape")


def _text(command: Command) -> str:
    """Return the command's text. Only `sh` runs bare, so that the loop survives to report a
    signal.
    """
    return render(command, bare=command.argv[0] == "sh")


class Framed:
    """A filter for one stream of one command that removes the marks around its output.

    `word` is the loop's random word, b"" until the loop has printed it. Text that a login shell
    prints before is forwarded for the first command. `begun` is set by the mark before the command.
    `status` is set by the mark after it, which the `last` command does not have. `spilled` is True
    if bytes followed that mark.
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
        self.noise = b""  # the end of the output that preceded the command

    def __call__(self, chunk: bytes) -> bool:
        """Forward one chunk. Return True after the final mark."""
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
        """Forward the held bytes, since the stream ended and they are not the start of a mark."""
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
    """Return the number of bytes at the end of `data` that may be the start of `mark`."""
    place = data.rfind(mark[:1], max(0, len(data) - len(mark) + 1))
    return len(data) - place if place >= 0 and mark.startswith(data[place:]) else 0
