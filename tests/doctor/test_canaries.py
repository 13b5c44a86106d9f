"""Secrets of many shapes, planted in three places of both archives: none of them goes out.

The shapes are those of attacks that were tried, and of the rule families of public scanners for
secrets. Each is made from pieces when the test runs, so that no file here has one.
"""

from __future__ import annotations

import base64
import json
import random
import re
import string
from collections.abc import Callable

import pytest

from fleet.doctor.bundle import doctor_members
from fleet.doctor.parts import own_words
from fleet.model.diagnosis import BAD, PROBLEM, Check, Diagnosis
from fleet.model.facts import Android, DeviceNode, Disk, Facts, Soc, ThermalZone, Tools, User
from fleet.model.plain import to_plain
from fleet.selftest.archive import selftest_members
from fleet.selftest.ladder import FELL, Climbed, RungResult, rungs

LOWER, UPPER, DIGITS = string.ascii_lowercase, string.ascii_uppercase, string.digits
WORD, HEX = LOWER + UPPER + DIGITS, DIGITS + "abcdef"
Made = Callable[[random.Random], str]


def of(alphabet: str, number: int, before: str = "") -> Made:
    """`number` random signs behind a prefix."""
    return lambda dice: before + "".join(dice.choices(alphabet, k=number))


def parts(*made: Made | str) -> Made:
    return lambda dice: "".join(one if isinstance(one, str) else one(dice) for one in made)


def spaced(made: Made, size: int, sep: str) -> Made:
    def cut(dice: random.Random) -> str:
        text = made(dice)
        return sep.join(text[at : at + size] for at in range(0, len(text), size))

    return cut


def encoded(size: int) -> Made:
    return lambda dice: base64.b64encode(dice.randbytes(size)).decode()


def syllables(number: int, end: str = "") -> Made:
    """A name or password that people can say: not in any table."""

    def said(dice: random.Random) -> str:
        pairs = (dice.choice("bdfgklmnprstvz") + dice.choice("aeiou") for _ in range(number))
        return "".join(pairs) + "qu" + end

    return said


def address(dice: random.Random) -> str:
    return ".".join(str(dice.randint(11, 250)) for _ in range(4))


TOKEN = {
    "aws-id": of(UPPER + "234567", 16, "AK" + "IA"),
    "aws-session-id": of(UPPER + "234567", 16, "AS" + "IA"),
    "aws-secret": of(WORD + "/+", 40),
    "github-pat": parts("github" + "_pat_", of(WORD, 22), "_", of(WORD, 59)),
    **{f"github-{kind}": of(WORD, 36, f"{kind}_") for kind in ("ghp", "gho", "ghu", "ghs", "ghr")},
    **{f"gitlab-{kind}": of(WORD + "_-", 20, f"{kind}-") for kind in ("glpat", "glptt", "glrt")},
    "slack-bot": parts("xo" + "xb-", of(DIGITS, 12), "-", of(DIGITS, 12), "-", of(WORD, 24)),
    "slack-user": parts("xo" + "xp-", of(DIGITS, 11), "-", of(DIGITS, 11), "-", of(HEX, 32)),
    "slack-app": parts("xa" + "pp-1-", of(UPPER, 11), "-", of(DIGITS, 13), "-", of(HEX, 64)),
    "stripe": of(WORD, 24, "sk" + "_live_"),
    "twilio": of(HEX, 32, "S" + "K"),
    "sendgrid": parts("S" + "G.", of(WORD + "_-", 22), ".", of(WORD + "_-", 43)),
    "mailgun": of(HEX, 32, "key" + "-"),
    "npm": of(WORD, 36, "npm" + "_"),
    "pypi": of(WORD + "_-", 60, "pypi" + "-AgEIcHlwaS5vcmc"),
    "docker": of(WORD + "_-", 27, "dckr" + "_pat_"),
    "digitalocean": of(HEX, 64, "dop" + "_v1_"),
    "shopify": of(HEX, 32, "shp" + "at_"),
    "google": of(WORD + "_-", 35, "AI" + "za"),
    "google-secret": of(WORD + "_-", 28, "GOC" + "SPX-"),
    "google-access": of(WORD + "_-", 60, "ya" + "29."),
    "openai": of(WORD, 48, "sk" + "-"),
    "openai-project": of(WORD + "_-", 48, "sk" + "-proj-"),
    "anthropic": of(WORD + "_-", 93, "sk" + "-ant-api03-"),
    "hugging-face": of(LOWER + UPPER, 34, "hf" + "_"),
    "databricks": of(HEX, 32, "da" + "pi"),
    "vault": of(WORD + "_-", 90, "hv" + "s."),
    "terraform": parts(of(WORD, 14), ".atlas" + "v1.", of(WORD, 60)),
    "telegram": parts(of("123456789", 10), ":A", of(WORD + "_-", 34)),
    "discord": parts(of(WORD, 24), ".", of(WORD, 6), ".", of(WORD + "_-", 27)),
    "azure-storage": parts(encoded(64)),
    "linear": of(WORD, 40, "lin" + "_api_"),
    "notion": of(WORD, 43, "sec" + "ret_"),
    "postman": parts("PM" + "AK-", of(HEX, 24), "-", of(HEX, 34)),
    "new-relic": of(UPPER + DIGITS, 27, "NR" + "AK-"),
    "sentry": parts("sntr" + "ys_", encoded(60)),
    "square": of(WORD + "_-", 43, "sq0" + "csp-"),
    "jfrog": of(WORD, 69, "AK" + "Cp"),
    "age": of("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58, "AGE-SECRET" + "-KEY-1"),
    "1password": parts("A3-", spaced(of(UPPER + DIGITS, 30), 6, "-")),
    "jwt": parts("ey" + "J", of(WORD, 17), ".ey" + "J", of(WORD, 40), ".", of(WORD + "_-", 43)),
    "heroku": parts(of(HEX, 8), "-", spaced(of(HEX, 12), 4, "-"), "-", of(HEX, 12)),
    "base32": of(UPPER + "234567", 32),
    "ssh-key": parts("AAAA" + "C3NzaC1lZDI1NTE5AAAAI", of(WORD + "/+", 43)),
    "ssh-fingerprint": encoded(32),
    "machine-id": of(HEX, 32),
    "partuuid": parts(of(HEX, 8), "-", spaced(of(HEX, 12), 4, "-"), "-", of(HEX, 12)),
    "disk-id": parts(of(HEX, 7), "e-0", of("12", 1)),
    "mac": spaced(of(HEX, 12), 2, ":"),
    "mac-dash": spaced(of(HEX, 12), 2, "-"),
    "mac-dot": spaced(of(HEX, 12), 4, "."),
    "mac-plain": parts(of(HEX, 11), "b"),
    "imei": of("3456789", 15),
    "imsi": of("234567", 15),
    "serial-mixed": parts("R", of("3456789", 2), "M", of("123456789", 2), of(UPPER, 5)),
    "serial-hex": parts(of(HEX, 7), "c"),
    "serial-number": of("123456789", 10),
    "ip": address,
    "ip6": parts("2001:db8:", of("123456789", 4), "::", of("123456789", 2), ":", of(HEX, 3)),
    "ip6-link": parts("fe80::", spaced(of("123456789", 16), 4, ":")),
    "fqdn": parts("evk.", syllables(3), ".", syllables(3), ".example"),
    "mail": parts(syllables(3), "@", syllables(3), ".example"),
    "card": spaced(of("123456789", 16), 4, " "),
    "phone": parts("+49 151 ", of("123456789", 8)),
    "iban": parts("DE", of("123456789", 20)),
    "umlaut": parts(syllables(2), "üß", syllables(2)),
}  # fmt: skip
# Shapes that a line around them makes a secret; {} is one.
LINE = {
    "slack-hook": (
        "https://hooks.slack.com/services/{}",
        parts("T", of(WORD, 8), "/B", of(WORD, 8), "/", of(WORD, 24)),
    ),
    "bearer": ("Authorization: Bearer {}", encoded(21)),
    "basic": ("Authorization: Basic {}", encoded(15)),
    "url": ("fetch https://build:{}@art.example/x", syllables(4, "7")),
    "url-plain": ("fetch http://admin:password@{}/x", syllables(4)),
    "json": ('{{"password": "{}"}}', syllables(4, "7")),
    "json-token": ('{{"token":"{}"}}', syllables(4, "7")),
    "option": ("started with --password {}", syllables(4, "8")),
    "option-equals": ("started with --api-key={}", syllables(4, "8")),
    "psk": ('psk="{}"', syllables(4, "9")),
    "known-word": ("password={}", lambda _: "kernelpanic"),
    "quoted": ("passwd: 'my {} word'", syllables(4)),
    "env": ("WIFI_PASSPHRASE={}", syllables(4)),
    "netrc": ("machine art login build password {}", syllables(4, "5")),
    "serialno": ("androidboot.serialno={}", of(UPPER + DIGITS, 11, "R5")),
    "nvmem": ("nvmem_uid: {}", of("123456789", 8)),
    "user": ("session opened for user {} by uid=0", syllables(5)),
    "uid": ("uid=1000({}) gid=1000({})", syllables(5)),
    "group": ("groups=1000(x),1007({})", syllables(5)),
    "path-user": ("/data/users/{}/model.bin", syllables(5)),
    "home": ("cannot open /home/{}/x", syllables(5)),
    "home-known": ("cannot open /home/{}/x", lambda _: "kernelpanic"),
    "windows-home": ("cannot open C:\\Users\\{}\\x", syllables(5)),
    "mount": ("/dev/sda1 /mnt/{} ext4 rw 0 0", syllables(5)),
    "file": ("open of {}.onnx failed", syllables(5)),
    "host": ("Nov 27 12:00:00 {} kernel: up", syllables(5)),
    "cookie": ("Cookie: sid={}", of(WORD, 20)),
}
SHAPES: dict[str, tuple[str, Made]] = {
    **{name: ("credential here {} end", made) for name, made in TOKEN.items()},
    **LINE,
}
PEM = "-----BEGIN OPENSSH PRIVATE" + " KEY-----\n{}\n-----END OPENSSH PRIVATE" + " KEY-----"
SHAPES["pem"] = (PEM, encoded(48))
FACTS = Facts(hostname="bench-seven", os_id="ubuntu", os_name="Ubuntu 24.04", machine="aarch64")


def line_of(shape: str) -> tuple[str, str]:
    """(the secret, the line that has it)."""
    line, made = SHAPES[shape]
    secret = made(random.Random(shape))
    return secret, line.format(*[secret] * line.count("{}"))


def planted(line: str, place: str) -> tuple[Facts, dict[str, str]]:
    """Facts and parts of a device that has the line in one place."""
    log, rules = "fastrpc: channel open\n", '# rules of fastrpc\nKERNEL=="fastrpc-*", MODE="0660"\n'
    facts = FACTS
    if place == "log":
        log += f"fastrpc: {line}\n"
    elif place == "rules":
        rules += f"# fastrpc {line}\n" + f'KERNEL=="fastrpc-*", ENV{{X}}="{line}" # {line}\n'
    else:
        facts = with_text(line)
    probe = "\n".join(f"{key}\t{value}" for key, value in to_plain(facts).items())
    texts = json.dumps(to_plain(facts), indent=1)
    return facts, {"facts": texts, "probe": probe, "log": log, "rules": rules}


def with_text(line: str) -> Facts:
    """Facts in which every text that a device gives is the line; what tells the device has a word
    more, so that the line is not taken for an id everywhere else.
    """
    own = f"{line} own"
    return Facts(
        hostname=own, os_id=line, os_version=line, os_name=line, kernel=line, machine=line,
        libc=line, libc_version=line, boot_id=own, machine_id=own, serial_number=own,
        soc=Soc(1, line, (line,), line, line, family=line, revision=line),
        user=User(own, 1000, f"/home/{line}", (line,), (line,)),
        nodes=(DeviceNode(f"/dev/{line}", True, "660", line, line, line),),
        libcdsprpc=(line,), qnn_libraries=(line,), dsp_library_path=line, dsp_shells=(line,),
        base_dir=line, disk=Disk(line, line), thermal=(ThermalZone(line, line, 40.0),),
        remoteproc=((line, line),), tools=Tools(python3=line, python3_version=line),
        android=Android(line, serialno=own, model=line, device=line, fingerprint=line),
    )  # fmt: skip


def archives(facts: Facts, texts: dict[str, str], line: str) -> dict[str, dict[str, str]]:
    """The members of both archives, in which fleet repeats the line as a device's words."""
    check = Check("nodes", "nodes", BAD, line, {"node.cdsp": "EACCES"}, "ls -l", line)
    diagnosis = Diagnosis(
        "evk-07", PROBLEM, checks=(check,), notes=(line,), parts=texts, secrets=own_words(facts)
    )
    (rung,) = [rung for rung in rungs() if rung.id == "nodes"]
    step = RungResult(rung, FELL, "nothing wrong", line, f"fastrpc {line}")
    climbed = Climbed("evk-07", facts, "2.51.0.260929181845", [step], texts)
    return {
        "doctor": doctor_members([diagnosis]),
        "selftest": selftest_members([climbed]),
    }


@pytest.mark.parametrize("place", ["log", "facts", "rules"])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_archive_has_a_secret(shape: str, place: str) -> None:
    secret, line = line_of(shape)
    facts, texts = planted(line, place)
    assert secret in "".join([*texts.values(), str(facts)]), "it was planted"
    runs = [run for run in re.findall(r"[^\W_]+", secret) if len(run) >= 6]
    for archive, members in archives(facts, texts, line).items():
        for name, text in members.items():
            left = [piece for piece in (secret, *runs) if piece.lower() in text.lower()]
            assert not left, (archive, name, left, text)
        whole = "".join(members.values())
        assert "fastrpc" in whole, "something is left"


def test_there_are_enough_shapes() -> None:
    assert len(SHAPES) >= 60
