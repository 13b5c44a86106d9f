"""What of an upload goes compressed: what was wished for, and where it saves time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fleet.engine.transfer.carriers import WORTH_BYTES, Choice, Try
from fleet.engine.transfer.depot import Depot
from fleet.model.facts import Facts
from fleet.model.plan import Blob


class Squeezing:
    """For one device; `try_` sends the beginning of a blob and says how fast that was."""

    def __init__(self, depot: Depot, facts: Facts, try_: Try) -> None:
        self._wish = depot.pace.compress
        self._sampler = depot.sampler
        self._able = facts.tools.gzip
        self._try = try_

    def may_pay(self, blobs: Sequence[Blob]) -> bool:
        """Whether compressing may pay, so that the rate of the link is to be known."""
        if not self._able or self._wish != "auto":
            return False
        shrink = [one for one in blobs if one.plain and self._sampler.pays(one.file, 0.0)]
        return sum(one.wire for one in shrink) >= WORTH_BYTES

    def measured(self, choice: Choice) -> Choice:
        """The rate, where it is not known and decides whether to compress."""
        if choice.rate is not None or not self.may_pay(choice.blobs):
            return choice
        large = [n for n, one in enumerate(choice.blobs) if one.plain]
        place = max(large, key=lambda n: choice.blobs[n].left)
        one = choice.blobs[place]
        count = one.left // 8
        rate = self._try(one, count, choice.carrier)
        blobs = list(choice.blobs)
        blobs[place] = replace(one, offset=one.offset + count)
        return replace(choice, rate=rate, blobs=blobs)

    def files(self, choice: Choice) -> frozenset[str]:
        """The SHA-256 of those that go compressed."""
        if self._wish == "never" or not self._able:
            return frozenset()
        rate = 0.0 if self._wish == "always" else choice.rate
        files = [one.file for one in choice.blobs if one.plain]
        return frozenset(item.sha256 for item in files if self._sampler.pays(item, rate))
