"""The meaning of error numbers and error names, and the causes that show them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from fleet.model.cause import Cause
from fleet.model.slots import filled
from fleet.triage.knowledge import knowledge

_NUMBER = re.compile(r"-?(?:0x[0-9a-f]+|[0-9]+)", re.IGNORECASE)
_LINES = ("{}", "Failed to create device: {}", "error {}", "err {}", "qnn_open failed, {}")
_FAMILIES = {"qnn": "QNN", "genie": "Genie", "fastrpc": "FastRPC"}


@dataclass(frozen=True)
class Meaning:
    """A possible meaning of a code: its family, its names, and a note on the number."""

    family: str
    number: int
    names: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True)
class Explained:
    """The possible meanings of a code, and the causes that show it, the most frequent first."""

    code: str
    meanings: tuple[Meaning, ...]
    causes: tuple[Cause, ...]
    PLAIN: ClassVar[str] = "code meanings causes=named"

    @property
    def named(self) -> list[dict[str, str]]:
        """The causes with id, layer and title."""
        return titles(self.causes)


def titles(causes: Iterable[Cause]) -> list[dict[str, str]]:
    """Return the id, layer and title of each cause, with the defaults of the slots of a log."""
    return [{"id": c.id, "layer": c.layer, "title": filled(c.title, {})} for c in causes]


def explain(code: str) -> Explained:
    """Explain a code: 14001, 0x36b1, 0x80000406, -8, AEE_EUNABLETOLOAD, QNN_..., GENIE_...

    An unknown code has no meanings.
    """
    code = code.strip()[:100]
    meanings = meanings_of(code)
    words = {code.lower()} | {name.lower() for meaning in meanings for name in meaning.names}
    words |= {form for meaning in meanings for form in _forms(meaning.number)}
    return Explained(code, tuple(meanings), _causes(words))


def meanings_of(code: str) -> list[Meaning]:
    """Return the possible meanings of a number or a name, without its causes."""
    return _of_number(_value(code)) if _NUMBER.fullmatch(code) else _of_name(code.upper())


def _value(text: str) -> int:
    return int(text, 16 if "x" in text.lower() else 10)


def _forms(number: int) -> set[str]:
    """Return the forms of a number in logs: decimal, hexadecimal, and as 32 bits with a sign."""
    forms = {str(number), f"0x{number & 0xFFFFFFFF:x}"}
    if number >= 1 << 31:
        forms.add(str(number - (1 << 32)))
    return forms


def _of_number(value: int) -> list[Meaning]:
    table = knowledge().codes
    meanings = []
    unsigned = value & 0xFFFFFFFF
    on_dsp = unsigned - int(table["dsp_offset"])
    if 0 < on_dsp < 0x10000:
        names = tuple(table["fastrpc"].get(on_dsp, ()))
        note = f"raised on the DSP: 0x80000400 + 0x{on_dsp:x}"
        return [Meaning(_FAMILIES["fastrpc"], unsigned, names, note)]
    for family in ("qnn", "genie", "fastrpc"):
        if value in table[family]:
            names = tuple(table[family][value])
            meanings.append(Meaning(_FAMILIES[family], value, names, _note(family, value)))
    if not meanings and value >= 1000 and (where := _component(value)):
        meanings.append(Meaning(_FAMILIES["qnn"], value, (), f"in the range of QNN's {where}"))
    return meanings


def _note(family: str, value: int) -> str:
    if family == "qnn" and value == 14001:
        return "means `invalid config`; often the last of several errors: read the first one"
    if family == "qnn" and value == 1008:
        return (
            "with a `mismatch` line above, the versions differ; without such a line, QNN did "
            "not find the skel"
        )
    return f"in the range of QNN's {_component(value)}" if family == "qnn" and value else ""


def _component(value: int) -> str:
    rows = knowledge().codes["qnn_ranges"]
    return next((str(name) for low, high, name in rows if low <= value <= high), "")


def _of_name(name: str) -> list[Meaning]:
    table = knowledge().codes
    return [
        Meaning(_FAMILIES[family], number, tuple(names))
        for family in ("qnn", "genie", "fastrpc")
        for number, names in table[family].items()
        if name in names
    ]


def _causes(words: set[str]) -> tuple[Cause, ...]:
    """Return the causes that list the code, ordered like those of lines with only this code."""
    known = knowledge()
    causes = [
        cause for cause in known.causes.values() if words & {code.lower() for code in cause.codes}
    ]
    weight = dict.fromkeys((cause.id for cause in causes), 0.0)
    for text in [form.format(word) for word in sorted(words) for form in _LINES]:
        for index in known.matcher.match(text):
            cause, signature, part = known.owners[index]
            if part == "match" and cause.id in weight and not signature.needs:
                weight[cause.id] += signature.weight
    return tuple(sorted(causes, key=lambda cause: (-round(weight[cause.id], 6), cause.id)))
