"""What the lines of a log say: hits of patterns, what it is about, signs of failure and success."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property

from fleet.triage.knowledge import Known
from fleet.triage.matcher import Matcher
from fleet.triage.text import Line, process_of

MAX_LINES = 200_000  # distinct lines that are looked at; a log repeats itself long before
_DOCUMENT = 0.25  # of the lines, from which on a text is for people to read
_SHORT = 5
_LONG = 30
_AGAIN = 6  # times one word after the other
_NOISE = re.compile(r"([!?@\ufffd])\1{11}")
_DEVICE = ("npu", "chip", "shell", "link", "phone")
_CUT = 3  # lines of exactly the same length, which is the greatest
_NARROW = (40, 260)  # columns of a terminal
_NEAR = 15  # lines between a failure and the word that says whose it is


class LogReading:
    """The distinct lines of one log, held against everything that is known."""

    def __init__(self, lines: list[Line], known: Known, *, given: bool = False) -> None:
        """Nothing is matched before it is asked for; `given`: somebody said whose it is."""
        self.known = known
        self.given = given
        first = {line.text: line for line in reversed(lines)}
        self.lines = sorted(first.values(), key=lambda line: line.number)[:MAX_LINES]
        self.text = "\n".join(line.text for line in self.lines)
        self._benign = known.benign.over(self.text)
        self._anywhere: dict[int, bool] = {}
        self._needed: dict[str, bool] = {}

    def benign(self, line: Line) -> bool:
        """Whether it looks like an error and is none."""
        return bool(self._benign.match(line.text))

    @cached_property
    def _successes(self) -> dict[Line, bool]:
        """Lines by which a program says that its work was done; True for those that end errors.

        A line with a word of failure is none of them.
        """
        matched = self.known.success.over(self.text)
        failing = set(self._failing)
        found = {}
        for line in self.lines:
            rows = [row for row in matched.match(line.text) if self._has_needed(row)]
            if rows and line not in failing:
                found[line] = any(row not in self.known.weak for row in rows)
        return found

    def _has_needed(self, row: int) -> bool:
        needed = self.known.needs[row]
        if needed not in self._needed:
            self._needed[needed] = not needed or bool(self.matching(Matcher([needed])))
        return self._needed[needed]

    @cached_property
    def _last_success(self) -> dict[str, int]:
        """The number of the last line of success, by process; "" has those without a process."""
        ending = (line for line, ends in self._successes.items() if ends)
        return {process_of(line.text): line.number for line in ending}

    def ended(self, line: Line) -> bool:
        """Return whether a later success of the same process ends what this line reports.

        Nothing is ended in a log that shows that the work was slow, wrong, or not on the NPU.
        """
        if not self._last_success or self.doubts:
            return False
        process = process_of(line.text)
        last = max(self._last_success.get(process, 0), self._last_success.get("", 0))
        return line.number < last

    def hits(self) -> Iterator[tuple[Line, list[int]]]:
        """Lines with the numbers of the signatures of causes that they hold."""
        matched = self.known.matcher.over(self.text, self.known.signatures)
        for line in self.lines:
            found = matched.match(line.text)
            if found and not self.benign(line):
                yield line, found

    def anywhere(self, number: int) -> bool:
        """Return whether a line holds this pattern of a cause (`needs` or `unless`)."""
        if number not in self._anywhere:
            matched = self.known.matcher.over(self.text, (number,))
            self._anywhere[number] = any(
                matched.match(line.text) and not self.benign(line) for line in self.lines
            )
        return self._anywhere[number]

    @cached_property
    def opposed(self) -> set[str]:
        """Ids of causes of which a line proves the opposite."""
        matched = self.known.against.over(self.text)
        return {
            self.known.opposed[number].id
            for line in self.lines
            for number in matched.match(line.text)
        }

    @cached_property
    def _failing(self) -> list[Line]:
        """Lines with a word of failure, without the harmless ones."""
        matched = self.known.failure_words.over(self.text)
        return [line for line in self.lines if matched.match(line.text) and not self.benign(line)]

    @cached_property
    def failures(self) -> list[Line]:
        """Lines with a word of failure, without the harmless ones and those that success ends."""
        return [line for line in self._failing if not self.ended(line)]

    @cached_property
    def succeeded(self) -> bool:
        """Whether a line says that the work was done, and one that it was done where it should."""
        return bool(self._successes)

    @property
    def achievements(self) -> list[Line]:
        """The last lines of success: what was seen to work."""
        return list(self._successes)[-2:]

    @cached_property
    def doubts(self) -> list[Line]:
        """Lines that say or show that the work was done slowly, elsewhere or wrongly."""
        slow = {line.number for line in self.matching(self.known.doubts)}
        return [line for line in self.lines if line.number in slow or _garbled(line.text)]

    def matching(self, matcher: Matcher) -> list[Line]:
        """Lines that hold one of its patterns."""
        matched = matcher.over(self.text)
        return [line for line in self.lines if matched.match(line.text)]

    def about(self, *contexts: str) -> list[Line]:
        """Lines with words of one of the contexts (context_words.yaml)."""
        return [line for context in contexts for line in self._of_context(context)]

    def _of_context(self, context: str) -> list[Line]:
        if context not in self._found:
            self._found[context] = self.matching(self.known.contexts[context])
        return self._found[context]

    @cached_property
    def _found(self) -> dict[str, list[Line]]:
        return {}

    def beside(self, contexts: Sequence[str]) -> bool:
        """Whether one of these contexts is there; none are asked for where anything will do."""
        return self.given or not contexts or any(self._of_context(name) for name in contexts)

    @cached_property
    def of_device(self) -> bool:
        """Whether a word of Qualcomm, of a phone, a board or a loader is there."""
        return self.given or bool(
            not self.of_others and self.about(*_DEVICE, "device", "runtime", "loader")
        )

    def in_reach(self, number: int) -> bool:
        """Whether a word of a deployment stands near the line, in a text that is long."""
        return len(self.lines) <= _LONG or any(
            abs(line.number - number) <= _NEAR for line in self._words
        )

    @cached_property
    def _words(self) -> list[Line]:
        return self.about(*_DEVICE, "device", "runtime", "loader")

    @cached_property
    def of_others(self) -> bool:
        """Whether it is of another maker, a cluster or a service, and of nothing of Qualcomm."""
        return not (self.given or self.about("npu", "chip")) and bool(
            self.about("foreign", "board")
        )

    @cached_property
    def of_build(self) -> list[Line]:
        """Lines of a build or a converter, where its failure is the first one.

        A tool that also runs on boards is no build where the DSP speaks in the same log.
        """
        if self.about("transport"):
            return []
        lines = self.about("build")
        first = self.failures[0].number if self.failures else MAX_LINES
        return ([line for line in lines if line.number <= first] and lines) or self.about(
            "workstation"
        )

    @cached_property
    def actor(self) -> str:
        """Who ran the program, by the words of the log: a key of actor_words.yaml, or ""."""
        return next((name for name, matcher in self.known.actors if self.matching(matcher)), "")

    @cached_property
    def cut(self) -> int:
        """The column at which a screenshot or a terminal cut the lines off; 0 for none."""
        lengths = sorted((len(line.text) for line in self.lines), reverse=True)
        longest = lengths[0] if lengths else 0
        same = sum(length == longest for length in lengths)
        narrow = _NARROW[0] <= longest <= _NARROW[1]
        return longest if narrow and same >= _CUT and same > len(lengths) / 4 else 0

    @cached_property
    def of_people(self) -> bool:
        """Whether it is a document: a README, a list of changes, a licence."""
        marks = len(self.about("document"))
        prose = sum(_prose(line.text) for line in self.lines)
        changes = sum(line.text.startswith(("* ", "- ", "+ ")) for line in self.lines)
        many = len(self.lines)
        told = prose + changes > _DOCUMENT * many
        sure = marks > 0 or prose > many / 2 or many > _LONG
        return many > _SHORT and (marks > 1 or (told and sure))


def _garbled(text: str) -> bool:
    """A word that is repeated and repeated, as a model does that computes wrong numbers."""
    words = text.split()
    return any(
        len(set(words[at : at + _AGAIN])) == 1 and words[at][0].isalpha()
        for at in range(len(words) - _AGAIN + 1)
    ) or bool(_NOISE.search(text))


def _prose(text: str) -> bool:
    """A sentence of many words, without what programs put into their lines."""
    words = text.split(" ")
    plain = sum(word.strip(".,;()'\"").isalpha() for word in words)
    return len(words) >= 7 and plain > 0.8 * len(words)
