"""Arguments for the `ssh` program, as Ansible inventories hold them: what fleet can use."""

from __future__ import annotations

import shlex

_WITH_VALUE = frozenset("BbcDEeFIiJLlmOopQRSWw")  # options of ssh(1) that take a value
_INSTEAD = {
    "i": "use ansible_ssh_private_key_file",
    "p": "use ansible_port",
    "l": "use ansible_user",
    "ProxyCommand": "use -J HOST or -o ProxyJump=HOST",
    "StrictHostKeyChecking": "fleet always checks host keys; fleet trust HOST (accepts a key)",
    "UserKnownHostsFile": "use fleet's key known_hosts",
    "IdentityFile": "use ansible_ssh_private_key_file",
    "Port": "use ansible_port",
    "User": "use ansible_user",
    "ConnectTimeout": "use fleet's key connect_timeout",
}


def understand(text: str) -> tuple[dict[str, str], list[str]]:
    """Fields of the inventory (proxy_jump, ssh_config), and a remark on each part not used.

    Of two values the first counts, as in OpenSSH. Remarks do not repeat values.
    """
    try:
        words = shlex.split(text)
    except ValueError:
        return {}, ["fleet ignores the arguments: a quote is not closed"]
    known: dict[str, str] = {}
    unused: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        letter = word[1:2] if word.startswith("-") else ""
        if letter not in _WITH_VALUE or not letter:
            unused.append(_remark(word if word.startswith("-") else "an argument without -"))
            continue
        value = word[2:]
        if not value:
            if at == len(words):
                unused.append(_remark(f"-{letter}"))
                break
            value = words[at]
            at += 1
        _option(letter, value, known, unused)
    return known, unused


def _option(letter: str, value: str, known: dict[str, str], unused: list[str]) -> None:
    if letter == "J":
        known.setdefault("proxy_jump", value)
    elif letter == "F":
        known.setdefault("ssh_config", value)
    elif letter == "o":
        name, _, setting = value.replace("=", " ", 1).strip().partition(" ")
        if name.lower() == "proxyjump" and setting.strip().lower() != "none":
            known.setdefault("proxy_jump", setting.strip())
        else:
            same = next((each for each in _INSTEAD if each.lower() == name.lower()), name)
            unused.append(_remark(f"-o {name}", same))
    else:
        unused.append(_remark(f"-{letter}", letter))


def _remark(what: str, key: str = "") -> str:
    cure = _INSTEAD.get(key, "")
    return f"fleet ignores {what}" + (f"; {cure}" if cure else "")
