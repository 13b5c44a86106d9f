"""The redaction of texts for strangers: known words stay, everything else is replaced.

A text is read from left to right. Parts with the form of a secret, an address or an id are replaced
first. Then every run of letters and digits is replaced, unless it is a word of
fleet/data/log_words.txt or a number that identifies nobody. The same text gets the same placeholder
everywhere in one archive, so that a line still shows its pattern.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from fleet.data import shipped_text

_G = "[0-9a-fA-F]{1,4}"  # a group of an IPv6 address
_HUSHED = (  # keys whose value is a secret
    r"[\w.-]{0,40}(?:passw(?:or)?d|passwd|passphrase|pass|pwd|secret|psk|api[_-]?key|access[_-]?key"
    r"|private[_-]?key|credential\w{0,9}|authorization|bearer|cookie|signature)s?"
)
_ID = (
    r"[\w.-]{0,40}(?:serial(?:no|[_-]?number|[_-]?num)?|imei\d?|imsi|iccid|meid|msisdn"
    r"|machine[_-]?id|nvmem_uid|boot[_-]?id|wifimac|btmac|mac_?addr\w{0,9}|hostname)"
)
_TOLD = r"\]?[\"']?[ \t]{0,3}[=: ][ \t]{0,3}[\[\"']?"
_OPTION = r"--?(?:[\w-]{0,30}pass\w{0,10}|token|[\w-]{0,30}secret|[\w-]{0,30}key|psk|pin)"
_VALUE = r"(?:\"[^\"\n]{1,400}\"|'[^'\n]{1,400}'|[^\s\"',;)\]}]+)"
_NO_VALUE = r"(?!<)(?!(?:required|needed|is|for|not|no|yes|none|null|true|false)\b)"
_TO = r"[\"']?[ \t]{0,3}[=:][=:>]?[ \t]{0,3}"  # between a key and its value
# (form, kind). The optional group `keep` stays before the placeholder, `after` stays after it.
_FORMS = (
    (r"-----BEGIN [A-Z ]*(?:KEY|CERTIFICATE)[A-Z ]*-----.*?(?:-----END [A-Z ]*-----|\Z)", "key"),
    (r"(?P<keep>\b[a-zA-Z][\w+.-]{0,20}://)[^/\s@\"']{1,400}(?P<after>@)", "login"),
    (
        rf"(?P<keep>(?i:\b{_HUSHED}{_TO}(?:(?:bearer|basic|token)\s+)?)){_NO_VALUE}{_VALUE}",
        "secret",
    ),
    (rf"(?P<keep>(?i:\b[\w.-]{{0,40}}token{_TO}))(?!<)(?!\d{{1,6}}\b){_VALUE}", "secret"),
    (rf"(?P<keep>(?i:(?:\s|^){_OPTION}[ =]))(?!<)(?!-){_VALUE}", "secret"),
    (r"(?P<keep>(?i:\b(?:bearer|basic)) +)[A-Za-z0-9+/=_.~-]{6,}", "secret"),
    (rf"(?P<keep>(?i:\b{_ID}){_TOLD})(?!<)(?=[\w:./+-]{{0,80}}\d)[\w:./+-]+", "id"),
    (r"(?P<keep>\bssh-\w{1,20} |\becdsa-[\w-]{1,30} )[A-Za-z0-9+/=]{16,}(?: \S+)?", "key"),
    (r"(?P<keep>\b(?:SHA256|MD5):)[A-Za-z0-9+/=:]{16,}", "key"),
    (r"(?<![\w.+%-])[\w.+%-]{1,64}@[\w-]+(?:\.[\w-]+)*", "login"),
    (r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b", "uuid"),
    (r"\b[0-9a-fA-F]{2}(?:[:-][0-9a-fA-F]{2}){5,7}\b", "mac"),
    (r"\b[0-9a-fA-F]{4}\.[0-9a-fA-F]{4}\.[0-9a-fA-F]{4}\b", "mac"),
    (rf"(?<![\w:])(?:{_G}:){{4,7}}{_G}(?:%\w+)?\b", "ip"),
    (rf"(?<![\w:])(?:{_G}:){{1,6}}(?::{_G}){{1,6}}(?:%\w+)?\b", "ip"),
    (rf"(?<![\w:]){_G}::(?=[/\s]|$)", "ip"),
    (r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]\d)", "ip"),
    (r"(?P<keep>/(?:home|Users|media|mnt|run/user|run/media)/)(?!<)[^/\s:;,'\"()]+", "user"),
    (r"(?P<keep>(?i:\\Users\\))[^\\\s:;,'\"]+", "user"),
    (r"(?<![\w.-])\+?\d[\d-]{0,3}(?:[ -]\d{2,4}){3,5}(?![\w.-])", "number"),
    (r"(?<![\w.+-])\+\d[\d ()-]{7,20}\d", "number"),
    (r"(?<![\w.])-?\d{1,3}\.\d{4,12}, ?-?\d{1,3}\.\d{4,12}", "number"),
)
_FORM = [(re.compile(form, re.DOTALL | re.MULTILINE), kind) for form, kind in _FORMS]
_NAMED = re.compile(r"(?<![\w-])(\d+)\(([^()\s]+)\)")  # uid=1000(NAME), 27(sudo)
_WORD = r"(?<![^\W_]){}(?![^\W_])"
_LOGIN = (
    r"(?:(?<=user )|(?<=for )|(?<=by )|(?<=USER=)|(?<=LOGNAME=)|(?<=User=)|(?<=user=)"
    r"|(?<=owner )|(?<=sudo: )|(?<=[0-9] )){}(?![\w.])"
)
_SYSTEM_NAMES = frozenset({"root", "system", "shell", "nobody", "nogroup"})
_PLACE = r"<[a-z]+-\d+>|device-\d+"
_SEGMENT = re.compile(rf"({_PLACE})|([\w][\w.+~%-]*)")
_RUN = re.compile(r"[^\W_]+")
_ENDS = re.compile(
    r"(?:\.(?:so|bin|json|log|txt|py|sh|onnx|dll|exe|sys|service|conf|rules|ko|mbn|elf|gz|xz|dlc"
    r"|serialized|raw|yaml|gguf|tflite|pte|apk|deb|whl|c|cc|cpp|h))+(?:\.\d{1,3}){0,4}$"
)
_VERSION = re.compile(r"v?\d{1,4}(?:\.\d{1,5}){1,3}(?:\.\d{12}(?:_\d{1,6})?)?")
_UNIT_ADDRESS = re.compile(r"^[0-9a-f]{5,6}00(?=\.[a-z]{4})")  # a300000.remoteproc
_MANGLED = re.compile(r"_Z\w{3,}")
_BUILD = re.compile(r"\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])[0-2]\d[0-5]\d[0-5]\d")
_DATE = re.compile(r"(?:19|20)\d{2}-?[01]\d-?[0-3]\d(?:[T_]\d{2,6}(?:\.\d{1,9})?Z?)?")
_DECIMAL = re.compile(r"\d{1,7}(?:\.\d{1,9})?")
_CODE = re.compile(r"0x(?:0{0,12}[0-9a-f]{1,4}|(?:f{8})?[8f]000[0-9a-f]{4})", re.IGNORECASE)
_UNIT = re.compile(r"\s?(?:bytes|[kMGT]i?B|B|KB|kb|us|ms|ns|s|µs|Hz|kHz|MHz)\b")
_SIZE = re.compile(r"(?:_kb|_bytes|inodes|size|length|bytes)\W{1,3}\Z", re.IGNORECASE)
_MODE = re.compile(
    r"[rwxsStTl-]{5,10}|7f454c46[0-9a-f]{0,150}"
)  # the mode of a file; the begin of an ELF file
_CHIP = re.compile(
    r"(?:qc[a-z]{1,2}|qr[bu]|s[amcdw]|sdm|sx[rh]|ssg|msm|apq|ipq|mdm|x1[ep])\d{2,5}[a-z]{0,3}"
)
_API = re.compile(
    r"(?:lib)?(?:qnn|htp|genie|dsp|snpe|qairt|fastrpc|rpc|remote|aee|ggml|ort|hexagon)"
)
_CAMEL = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_PLAIN = "\n\t°µ×–—…→≤≥±·✓✗"  # noqa: RUF001 - they stay, like ASCII
_SIGNED = 1 << 31  # AEE codes from this number on are also written as signed numbers


def shape(run: str) -> str:
    """Return letters and digits in the form of the word table: lower case, with # for numbers."""
    return re.sub(r"\d+", "#", run).lower()


@cache
def known_words() -> frozenset[str]:
    """Return the table of words that stay."""
    lines = shipped_text("log_words.txt").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("# "))


class Redactor:
    """The placeholders of one archive.

    `names` are the devices of the inventory, which become device-1 and so on. `own` are (kind,
    word) that identify a device or its user.
    """

    def __init__(self, names: Iterable[str] = (), own: Iterable[tuple[str, str]] = ()) -> None:
        self._places: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._names = [
            (re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])"), f"device-{number}")
            for number, name in enumerate(names, 1)
            if name
        ]
        self._own = [
            (
                re.compile(
                    _LOGIN.format(re.escape(word))
                    if kind == "login"
                    else _WORD.format(re.escape(word))
                ),
                word,
                kind,
            )
            for kind, word in sorted(own, key=lambda pair: -len(pair[1]))
            if word and word not in _SYSTEM_NAMES
        ]

    def text(self, text: str) -> str:
        """Redact a text of a device, or a text of fleet about it."""
        for pattern, place in self._names:
            text = pattern.sub(place, text)
        for own, word, kind in self._own:
            text = own.sub(self._place(kind, word), text)
        for form, kind in _FORM:
            text = form.sub(self._formed(kind), text)
        text = _NAMED.sub(self._named, text)
        text = _SEGMENT.sub(self._segment, text)
        return "".join(c if " " <= c <= "~" or c in _PLAIN else " " for c in text)

    def value(self, value: Any) -> Any:  # noqa: ANN401 - JSON
        """Redact every text in plain data for JSON; numbers stay."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {str(key): self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value

    def json(self, value: object) -> str:
        """Redact plain data and return it as a JSON document."""
        return json.dumps(self.value(value), indent=1, ensure_ascii=False) + "\n"

    def place(self, kind: str, word: str) -> str:
        """Return the placeholder of a text, "" for an empty text."""
        return self._place(kind, word) if word else ""

    def _place(self, kind: str, word: str) -> str:
        key = kind, word
        if key not in self._places:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._places[key] = f"<{kind}-{self._counts[kind]}>"
        return self._places[key]

    def _formed(self, kind: str) -> Callable[[re.Match[str]], str]:
        def put(match: re.Match[str]) -> str:
            groups = match.groupdict()
            keep, after = groups.get("keep") or "", groups.get("after") or ""
            word = match[0][len(keep) : len(match[0]) - len(after)]
            if kind == "number" and sum(c.isdigit() for c in word) < 9:
                return match[0]
            return keep + self._place(kind, word) + after

        return put

    def _named(self, match: re.Match[str]) -> str:
        name = match[2]
        if name in _SYSTEM_NAMES or (int(match[1]) < 1000 and shape(name) in known_words()):
            return match[0]
        return f"{match[1]}({self._place('user', name)})"

    def _segment(self, match: re.Match[str]) -> str:
        if match[1]:
            return match[1]
        word = match[2]
        bare = word.rstrip(".+~%-_")
        tail = word[len(bare) :]
        before = match.string[match.start() - 1] if match.start() else ""
        if _MANGLED.fullmatch(bare):
            return f"_Z_symbol_{re.sub(r'[^0-9]', '', self._place('symbol', bare))}"
        after = match.string[match.end() : match.end() + 8]
        sized = bare.isdigit() and _SIZE.search(
            match.string, max(0, match.start() - 20), match.start()
        )
        if (sized and len(bare) <= 13) or stays(bare, after, negative=before == "-"):
            return word
        end = _ENDS.search(bare)
        if end and end.start():
            stem, bare_end = bare[: end.start()], bare[end.start() :]
            return self._unknown(stem) + bare_end + tail
        return self._unknown(bare) + tail

    def _unknown(self, word: str) -> str:
        if stays(word, "", negative=False):
            return word
        digits = word.removeprefix("0x")
        if word.isdigit():
            return self._place("number", word)
        hexadecimal = len(digits) >= 6 and re.fullmatch("[0-9a-fA-F]+", digits)
        return self._place("hex" if hexadecimal else "word", word)


def stays(word: str, after: str, *, negative: bool) -> bool:
    """Return True for a known word or a usual number (`negative`: after a minus sign)."""
    if _number_stays(word, after, negative=negative) or _MODE.fullmatch(word):
        return True
    runs = _RUN.findall(_UNIT_ADDRESS.sub("", word))
    if len([run for run in runs if len(run) < 3 and not run.isdigit()]) > 2:
        return False  # a key or an address in small groups
    if sum(len(run) for run in runs if run.isdigit()) > 12:
        return False
    return all(_run_stays(run) for run in runs)


def _run_stays(run: str) -> bool:
    if not run.isascii() and shape(run) not in known_words():
        return False
    known = known_words()
    small = run.lower()
    if small in known:
        return True
    if run.isdigit():
        return len(run) <= 7 or bool(_BUILD.fullmatch(run))
    if max(map(len, re.findall(r"\d+", run)), default=0) > 5:
        return False
    if shape(run) in known or _CHIP.fullmatch(small):
        return True
    parts = _CAMEL.findall(run)
    return (
        run.isalpha()
        and 1 < len(parts) <= 6
        and bool(_API.match(small))
        and all(len(part) >= 3 and part.lower() in known for part in parts)
    )


def _number_stays(word: str, after: str, *, negative: bool) -> bool:
    if not (word[:1].isdigit() or word[:1] in "vV"):
        return False
    if any(form.fullmatch(word) for form in (_DECIMAL, _CODE, _DATE)):
        return True
    if _VERSION.fullmatch(word):
        long = re.search(r"\d{12}", word)
        return long is None or bool(_BUILD.fullmatch(long[0]))
    if not word.isdigit() or len(word) > 13:
        return False
    if _UNIT.match(after):
        return True
    number = -int(word) if negative else int(word)
    return number % (1 << 32) in range(_SIGNED, _SIGNED + 0x1000)
