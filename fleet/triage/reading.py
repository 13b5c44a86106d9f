"""What the lines of a log say: hits of patterns, what it is about, signs of failure and success."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from fleet.triage.knowledge import Known
from fleet.triage.matcher import Matcher
from fleet.triage.text import Line

MAX_LINES = 200_000  # distinct lines that are looked at; a log repeats itself long before
_DOCUMENT = 0.25  # of the lines, from which on a text is for people to read
_SHORT = 5
_LONG = 30
_NEAR = 15  # lines between a failure and the word that says whose it is


class LogReading:
    """The distinct lines of one log, held against everything that is known."""

    def __init__(self, lines: list[Line], known: Known) -> None:
        """Nothing is matched before it is asked for."""
        self.known = known
        first = {line.text: line for line in reversed(lines)}
        self.lines = sorted(first.values(), key=lambda line: line.number)[:MAX_LINES]
        self.text = "\n".join(line.text for line in self.lines)
        self._benign = known.benign.over(self.text)

    def benign(self, line: Line) -> bool:
        """Whether it looks like an error and is none."""
        return bool(self._benign.match(line.text))

    def hits(self) -> Iterator[tuple[Line, list[int]]]:
        """Lines with the numbers of the patterns of causes that they hold."""
        matched = self.known.matcher.over(self.text)
        for line in self.lines:
            found = matched.match(line.text)
            if found and not self.benign(line):
                yield line, found

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
    def failures(self) -> list[Line]:
        """Lines with a word of failure, without the harmless ones."""
        matched = self.known.failure_words.over(self.text)
        return [line for line in self.lines if matched.match(line.text) and not self.benign(line)]

    @cached_property
    def succeeded(self) -> bool:
        """Whether a line says that the work was done, and one that it was done where it should."""
        matched = self.known.success.over(self.text)
        rows = {number for line in self.lines for number in matched.match(line.text)}
        return any(
            not (needed := self.known.needs[number]) or self.matching(Matcher([needed]))
            for number in rows
        )

    def matching(self, matcher: Matcher) -> list[Line]:
        """Lines that hold one of its patterns."""
        matched = matcher.over(self.text)
        return [line for line in self.lines if matched.match(line.text)]

    def about(self, context: str) -> list[Line]:
        """Lines with words of a context: device, build or document."""
        return self.matching(self.known.contexts[context])

    @cached_property
    def of_device(self) -> bool:
        """Whether a word of Qualcomm, of a phone, a board or a loader is there."""
        return bool(
            self.about("device")
            or (not self.of_others and (self.about("runtime") or self.about("way")))
        )

    def in_reach(self, number: int) -> bool:
        """Whether a word of a deployment stands near the line, in a text that is long."""
        return len(self.lines) <= _LONG or any(
            abs(line.number - number) <= _NEAR for line in self._words
        )

    @cached_property
    def _words(self) -> list[Line]:
        return self.about("device") + self.about("runtime") + self.about("way")

    @cached_property
    def of_others(self) -> bool:
        """Whether it is of another accelerator, a cluster or a service, and of no device."""
        return bool(self.about("foreign") or self.about("board")) and not self.about("device")

    @cached_property
    def of_build(self) -> list[Line]:
        """Lines of a build or a converter, where its failure is the first one."""
        lines = self.about("build")
        first = self.failures[0].number if self.failures else MAX_LINES
        return [line for line in lines if line.number <= first] and lines

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


def _prose(text: str) -> bool:
    """A sentence of many words, without what programs put into their lines."""
    words = text.split(" ")
    plain = sum(word.strip(".,;()'\"").isalpha() for word in words)
    return len(words) >= 7 and plain > 0.8 * len(words)
