"""The reading of a log: matches of patterns, its subject, and signs of failure and success."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from fleet.triage.knowledge import Known
from fleet.triage.matcher import Matched, Matcher
from fleet.triage.text import Line, is_quiet, process_of

MAX_LINES = 200_000  # limit of the distinct lines that are read; a log repeats itself long before
_DOCUMENT = 0.25  # a text with a larger share of prose is a document
_SHORT = 5
_LONG = 30
_AGAIN = 6  # repetitions of a word that count as garbled output
_NOISE = re.compile(r"([!?@\ufffd])\1{11}")
_DEVICE = ("npu", "chip", "shell", "link", "phone")
_CUT = 3  # lines with exactly the same length, the greatest one
_NARROW = (40, 260)  # columns of a terminal
_TAIL = 200  # the last lines that are read if no failing line has a word of a stage
_OF_BUILDS = ("aihub", "install", "convert", "build")  # stages
_NEAR = 15  # lines between a failure and the word that shows its origin


class LogReading:
    """The distinct lines of one log, compared with all known patterns."""

    def __init__(self, lines: list[Line], known: Known, *, given: bool = False) -> None:
        """Store the lines; patterns are matched on demand.

        `given`: the user stated the origin of the log.
        """
        self.known = known
        self.given = given
        first = {line.text: line for line in reversed(lines)}
        self.lines = sorted(first.values(), key=lambda line: line.number)[:MAX_LINES]
        self.text = "\n".join(line.text for line in self.lines)
        self._benign = known.benign.over(self.text)
        self._anywhere: dict[int, bool] = {}
        self._needed: dict[str, bool] = {}

    def benign(self, line: Line) -> bool:
        """Return True if the line looks like an error but is harmless."""
        return bool(self._benign.match(line.text))

    @cached_property
    def _successes(self) -> dict[Line, bool]:
        """Lines with which a program reports that its work is done; True for those that end errors.

        A line with a word of failure is not among them.
        """
        matched = self.known.success.over(self.text)
        failing = set(self._failing)
        successes = {}
        for line in self.lines:
            rows = [row for row in matched.match(line.text) if self._has_needed(row)]
            if rows and line not in failing:
                successes[line] = any(row not in self.known.weak for row in rows)
        return successes

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
        """Return True if a later success of the same process ends what this line reports.

        Nothing is ended in a log that shows that the work was slow, wrong, or not on the NPU.
        """
        if not self._last_success or self.doubts:
            return False
        process = process_of(line.text)
        last = max(self._last_success.get(process, 0), self._last_success.get("", 0))
        return line.number < last

    def hits(self) -> Iterator[tuple[Line, list[int]]]:
        """Yield lines with the numbers of the matching signatures of causes."""
        matched = self.known.matcher.over(self.text, self.known.signatures)
        for line in self.lines:
            numbers = matched.match(line.text)
            if numbers and not self.benign(line):
                yield line, numbers

    def anywhere(self, number: int) -> bool:
        """Return True if a line matches this pattern of a cause (`needs` or `unless`)."""
        if number not in self._anywhere:
            matched = self.known.matcher.over(self.text, (number,))
            self._anywhere[number] = any(
                matched.match(line.text) and not self.benign(line) for line in self.lines
            )
        return self._anywhere[number]

    @cached_property
    def opposed(self) -> set[str]:
        """The ids of causes that a line disproves."""
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
        """True if a line reports finished work, and a line shows that it ran where it should."""
        return bool(self._successes)

    @cached_property
    def healthy(self) -> bool:
        """True if the work was done and no line of trouble follows.

        A warning, and what the program itself gives a level below an error, may stand before the
        last success.
        """
        if not self._successes or self.doubts:
            return False
        last = max(line.number for line in self._successes)
        worries = (row for row in self.matching(self.known.worries) if not self.benign(row))
        return not any(row.number > last for row in worries) and all(
            row.number < last and is_quiet(row.text) for row in self.failures
        )

    @property
    def achievements(self) -> list[Line]:
        """The last lines of success."""
        return list(self._successes)[-2:]

    @cached_property
    def doubts(self) -> list[Line]:
        """Lines that show that the work was done slowly, elsewhere or wrongly."""
        slow = {line.number for line in self.matching(self.known.doubts)}
        return [line for line in self.lines if line.number in slow or _garbled(line.text)]

    def matching(self, matcher: Matcher) -> list[Line]:
        """Return the lines that match one of the patterns."""
        matched = matcher.over(self.text)
        return [line for line in self.lines if matched.match(line.text)]

    def about(self, *contexts: str) -> list[Line]:
        """Return the lines with words of one of the contexts (context_words.yaml)."""
        return [line for context in contexts for line in self._of_context(context)]

    def _of_context(self, context: str) -> list[Line]:
        if context not in self._by_context:
            self._by_context[context] = self.matching(self.known.contexts[context])
        return self._by_context[context]

    @cached_property
    def _by_context(self) -> dict[str, list[Line]]:
        return {}

    def beside(self, contexts: Sequence[str]) -> bool:
        """Return True if the log has one of these contexts, or if no context is required."""
        return self.given or not contexts or any(self._of_context(name) for name in contexts)

    @cached_property
    def of_device(self) -> bool:
        """True if the log has a word of Qualcomm, of a phone, a board or a loader."""
        return self.given or bool(
            not self.of_others and self.about(*_DEVICE, "device", "runtime", "loader")
        )

    def in_reach(self, number: int) -> bool:
        """Return True if the text is short, or a word about a device, runtime or loader is near."""
        return len(self.lines) <= _LONG or any(
            abs(line.number - number) <= _NEAR for line in self._words
        )

    @cached_property
    def _words(self) -> list[Line]:
        return self.about(*_DEVICE, "device", "runtime", "loader")

    @cached_property
    def of_others(self) -> bool:
        """True if the log is about another vendor, a cluster or a service, and not about
        Qualcomm.
        """
        return not (self.given or self.about("npu", "chip")) and bool(
            self.about("foreign", "board")
        )

    @cached_property
    def of_build(self) -> list[Line]:
        """Lines of a build or a converter, if its failure is the first one in the log.

        A tool that also runs on boards is no build if a failure of the DSP is in the same log.
        """
        lines = self.about("build")
        of_dsp = {*self.about("transport")} - {*lines}
        if any(line in of_dsp for line in self.failures):
            return []
        first = self.failures[0].number if self.failures else MAX_LINES
        return ([line for line in lines if line.number <= first] and lines) or self.about(
            "workstation"
        )

    @cached_property
    def failing_stage(self) -> dict[str, Any] | None:
        """The stage of the first failing line with a word of a stage (stages.yaml)."""
        return self._stage_in(self.failures)

    @cached_property
    def stage(self) -> dict[str, Any] | None:
        """The stage of the first failing line, else of the last line; None if none is known."""
        last = self.failing_stage or self._stage_in(reversed(self.lines[-_TAIL:]))
        build = next((row for row in self.known.stages if row["id"] == "build"), None)
        return last or (build if self.of_build else None)

    @cached_property
    def _stage_words(self) -> Matched:
        return self.known.staged.over(self.text)

    def _stage_in(self, lines: Iterable[Line]) -> dict[str, Any] | None:
        """Return the first stage in the lines. The failure of a build has a stage of builds."""
        stages, words = self.known.stages, self._stage_words
        every = (stages[number] for line in lines for number in words.match(line.text))
        return next((row for row in every if not self.of_build or row["id"] in _OF_BUILDS), None)

    @cached_property
    def actor(self) -> str:
        """The actor that ran the program by the words of the log: a key of actor_words.yaml, or
        "".
        """
        return next((name for name, matcher in self.known.actors if self.matching(matcher)), "")

    @cached_property
    def cut(self) -> int:
        """The column at which a screenshot or a terminal cut off the lines; 0 for none."""
        lengths = sorted((len(line.text) for line in self.lines), reverse=True)
        longest = lengths[0] if lengths else 0
        same = sum(length == longest for length in lengths)
        narrow = _NARROW[0] <= longest <= _NARROW[1]
        return longest if narrow and same >= _CUT and same > len(lengths) / 4 else 0

    @cached_property
    def of_people(self) -> bool:
        """True if the text is a document: a README, a change log, a licence.

        Separators such as `====` count as one mark in all, because programs print them, too.
        """
        about = self.about("document")
        named = [line for line in about if any(map(str.isalnum, line.text))]
        marks = len(named) + (len(named) < len(about))
        prose = sum(_prose(line.text) for line in self.lines)
        changes = sum(line.text.startswith(("* ", "- ", "+ ")) for line in self.lines)
        many = len(self.lines)
        mostly_prose = prose + changes > _DOCUMENT * many
        sure = marks > 0 or prose > many / 2 or many > _LONG
        return many > _SHORT and (marks > 1 or (mostly_prose and sure))


def _garbled(text: str) -> bool:
    """Return True for a word that repeats on and on, which a model with wrong numbers produces."""
    words = text.split()
    return any(
        len(set(words[at : at + _AGAIN])) == 1 and words[at][0].isalpha()
        for at in range(len(words) - _AGAIN + 1)
    ) or bool(_NOISE.search(text))


def _prose(text: str) -> bool:
    """Return True for a sentence of many words without the marks of program output."""
    words = text.split(" ")
    plain = sum(word.strip(".,;()'\"").isalpha() for word in words)
    return len(words) >= 7 and plain > 0.8 * len(words)
