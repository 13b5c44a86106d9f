"""Ansible's inventory variables, as far as they concern a connection.

Names and precedence are those of the `ansible.builtin.ssh` connection plugin and of the `sudo`
become plugin. If several names set the same value, the plugin's last name wins, whatever group or
host it belongs to.
"""

from __future__ import annotations

import getopt
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleet.config.hostvars import HOST_KEYS, PRIORITY, SECTIONS
from fleet.config.problems import SECRET_KEYS, Problems, suggestion
from fleet.config.settings import Ignored, Notes, Setting, Settings, Unusable, check
from fleet.config.yamlpos import Document, Keys, Vault, describe
from fleet.model.errors import InputError, InventoryError
from fleet.model.inventory import TRANSPORTS
from fleet.model.secret import Secret, SecretRef, refuse_unmaskable

# The parts of Ansible's ssh arguments that fleet can use.

_WITH_VALUE = frozenset("BbcDEeFIiJLlmOopQRSWw")  # options of ssh(1) that take a value
_NO_PROXY = "proxycommand=none"
_INSTEAD = {
    "i": "use ansible_ssh_private_key_file",
    "p": "use ansible_port",
    "l": "use ansible_user",
    "StrictHostKeyChecking": "fleet always checks host keys; fleet trust HOST (accepts a key)",
    "UserKnownHostsFile": "use fleet's key known_hosts",
    "IdentityFile": "use ansible_ssh_private_key_file",
    "Port": "use ansible_port",
    "User": "use ansible_user",
    "ConnectTimeout": "use fleet's key connect_timeout",
}


def understand(text: str) -> tuple[dict[str, str], list[str]]:
    """Return the inventory fields in ssh arguments (proxy_jump, ssh_config) and a remark for each
    unused part.

    The first of two values counts, as in OpenSSH. Remarks do not repeat values.
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
        elif name.lower() == "proxycommand":
            jump = _jump_of(setting)
            if setting.strip().lower() != "none":
                known.setdefault("proxy_jump" if jump else "proxy_command", jump or setting)
        else:
            same = next((each for each in _INSTEAD if each.lower() == name.lower()), name)
            unused.append(_remark(f"-o {name}", same))
    else:
        unused.append(_remark(f"-{letter}", letter))


def _jump_of(command: str) -> str:
    """Return USER@HOST[:PORT] of `ssh -W %h:%p [-p PORT] USER@HOST`, which is equivalent to a jump
    host; "" for other commands.
    """
    try:
        program, *words = shlex.split(command) or [""]
        pairs, targets = getopt.gnu_getopt(words, "qATW:p:o:")
    except (ValueError, getopt.GetoptError):
        return ""
    options = dict(pairs)
    others = [value for name, value in pairs if name == "-o" and value.lower() != _NO_PROXY]
    if program != "ssh" or options.get("-W") != "%h:%p" or len(targets) != 1 or others:
        return ""
    if targets[0].startswith("-"):
        return ""
    return targets[0] + (f":{options['-p']}" if "-p" in options else "")


def _remark(what: str, key: str = "") -> str:
    cure = _INSTEAD.get(key, "")
    return f"fleet ignores {what}" + (f"; {cure}" if cure else "")


# Ansible's name → (fleet's field, rank among the names of that field).
NAMES: Mapping[str, tuple[str, int]] = {
    "ansible_host": ("host", 1),
    "ansible_ssh_host": ("host", 2),
    "ansible_port": ("port", 1),
    "ansible_ssh_port": ("port", 2),
    "ansible_user": ("user", 1),
    "ansible_ssh_user": ("user", 2),
    "ansible_private_key_file": ("identity_file", 1),
    "ansible_ssh_private_key_file": ("identity_file", 2),
    "ansible_connection": ("transport", 1),
    "ansible_password": ("password", 1),
    "ansible_ssh_pass": ("password", 2),
    "ansible_ssh_password": ("password", 3),
    "ansible_become_password": ("become_password", 1),
    "ansible_become_pass": ("become_password", 2),
    "ansible_sudo_pass": ("become_password", 3),
}
# OpenSSH uses the first of two options, and Ansible passes the variables in this order.
ARGUMENTS: Mapping[str, int] = {
    "ansible_ssh_args": 3,
    "ansible_ssh_common_args": 2,
    "ansible_ssh_extra_args": 1,
}
CONNECTIONS: Mapping[str, str] = {
    plugin: kind.name for kind in TRANSPORTS.values() for plugin in kind.ansible
}
# Variables that Ansible knows and fleet does not need. A trailing * matches any ending.
UNUSED = (
    "ansible_become",
    "ansible_become_exe",
    "ansible_become_flags",
    "ansible_become_method",
    "ansible_become_user",
    "ansible_check_mode",
    "ansible_config_file",
    "ansible_control_path",
    "ansible_diff_mode",
    "ansible_facts*",
    "ansible_host_key_checking",
    "ansible_network_*",
    "ansible_paramiko_*",
    "ansible_pipelining",
    "ansible_python_interpreter",
    "ansible_remote_tmp",
    "ansible_scp_*",
    "ansible_sftp_*",
    "ansible_shell_*",
    "ansible_ssh_executable",
    "ansible_ssh_host_key_checking",
    "ansible_ssh_pipelining",
    "ansible_ssh_retries",
    "ansible_ssh_timeout",
    "ansible_ssh_transfer_method",
    "ansible_sudo",
    "ansible_sudo_user",
    "ansible_timeout",
    "ansible_user_*",
    "ansible_winrm_*",
    PRIORITY,
)
# Keys of fleet that people may also use as variables of their own, with another meaning.
_COMMON = frozenset({"host", "port", "user", "password", "become_password", "identity_file"})
_NEAR = 0.75  # `prot` is near `port`; `domain` is near nothing
_LOOKUP = re.compile(
    r"""\{\{\s*(?:lookup|query)\(\s*(['"])(?:ansible\.builtin\.)?env\1\s*,\s*"""
    r"""(['"])([A-Za-z_][A-Za-z0-9_]*)\2\s*\)\s*\}\}"""
)


class VaultRef(SecretRef):
    """A secret encrypted by ansible-vault: it loads, but using it raises an error with the cure."""

    def get(self) -> Secret:
        """Raise InventoryError, because fleet has no key of the vault."""
        raise InventoryError(
            f"{self.reference} is encrypted by ansible-vault, which fleet cannot decrypt",
            hint="write env:NAME instead, and export the environment variable NAME with the "
            "output of `ansible-vault view`",
        )


class AnsibleReader:
    """A reader of variables that uses the known ones, ignores the others, and warns about likely
    typos.
    """

    port_key = "ansible_port"
    lone_name = True

    def __init__(self, document: Document, problems: Problems, notes: Notes, folder: Path) -> None:
        self._document, self._problems, self._notes = document, problems, notes
        self._folder = folder
        keys = {str(path[-1]) for path in document.keys}
        self._twins = _COMMON & {name for key, (name, _) in NAMES.items() if key in keys}

    def section(self, name: str, path: Keys) -> None:
        """Ignore an unknown key of a group with a warning, as Ansible does."""
        near = suggestion(name, SECTIONS)
        self._ignore(name, path)
        self._notes.warn(
            f"fleet ignores '{name}', because a group has no such key"
            + (f"; {near}" if near else ""),
            self._document.key(path),
        )

    def settings(self, body: dict[str, Any], path: Keys, *, of_group: bool) -> Settings:  # noqa: ARG002
        """Return the variables that fleet uses, and note the ignored ones. `of_group` is unused."""
        settings: Settings = {}
        for key, value in body.items():
            here = (*path, key)
            if key in NAMES:
                setting = self._named(key, value, here)
                settings[key] = (setting,) if setting else ()
            elif key in ARGUMENTS:
                settings[key] = self._arguments(key, value, here)
            elif key in HOST_KEYS:
                settings[key] = self._own(key, value, here)
            else:
                self._unknown(key, here)
        return settings

    def _ignore(self, key: str, path: Keys) -> None:
        self._notes.ignored.append(Ignored(key, self._document.key(path)))

    def _unknown(self, key: str, path: Keys) -> None:
        self._ignore(key, path)
        if any(key == name or (name[-1] == "*" and key.startswith(name[:-1])) for name in UNUSED):
            return
        ours = not key.startswith("ansible_")
        interpreter = not ours and key.endswith("_interpreter")  # of any language
        known = [*NAMES, *ARGUMENTS, *(name for name in UNUSED if name[-1] != "*")]
        near = suggestion(key, HOST_KEYS if ours else known, cutoff=0.95 if interpreter else _NEAR)
        if interpreter and not near:
            return
        if near or not ours:
            self._notes.warn(
                f"fleet ignores the variable '{key}'" + (f"; {near}" if near else ""),
                self._document.key(path),
            )

    def _named(self, key: str, value: object, path: Keys) -> Setting | None:
        name, rank = NAMES[key]
        if value is None:
            return Setting(name, None, rank)
        if name in SECRET_KEYS:
            return self._secret(key, value, path)
        text = self._document.text(path) if not isinstance(value, Vault) else ""
        if text and self._template(key, text, path):
            return None
        if name == "transport" and text:
            return self._connection(key, text, path)
        if name == "port" and text.strip().isdigit():
            value = int(text)
        elif text:
            value = text
        return check(self._document, self._problems, name, value, path, rank=rank)

    def _template(self, key: str, text: str, path: Keys) -> bool:
        if "{{" not in text and "{%" not in text:
            return False
        self._problems.add(
            f"'{key}' contains a template ({{{{ ... }}}}), which fleet does not evaluate",
            self._document.value(path),
            "write the value without a template; for a password write env:NAME",
        )
        return True

    def _connection(self, key: str, text: str, path: Keys) -> Setting | None:
        kind = CONNECTIONS.get(text.removeprefix("ansible.builtin."))
        if kind is None:
            why = f"fleet does not support the connection {text}, only ssh, local and adb"
            unusable = Unusable(why, self._document.value(path))
            return Setting("transport", unusable, NAMES[key][1])
        return Setting("transport", kind, NAMES[key][1])

    def _secret(self, key: str, value: object, path: Keys) -> Setting | None:
        name, rank = NAMES[key]
        at = self._document.value(path)
        if isinstance(value, Vault):
            return Setting(name, VaultRef(f"'{key}' ({at})", self._folder), rank)
        text = self._document.text(path)
        if not text:
            self._problems.add(f"'{key}' must be text, not {describe(value)}", at, "write env:NAME")
            return None
        lookup = _LOOKUP.fullmatch(text.strip())
        if lookup:
            return Setting(name, SecretRef(f"env:{lookup[3]}", self._folder, position=at), rank)
        if self._template(key, text, path):
            return None
        if text.startswith(("env:", "file:", "cmd:")):
            return check(self._document, self._problems, name, text, path, rank=rank)
        self._notes.warn(
            f"'{key}' is a password in clear text; write env:NAME, file:PATH or cmd:PROGRAM", at
        )
        clear = Secret(text)
        reference: SecretRef | Unusable = SecretRef(
            f"clear text of '{key}' ({at})", self._folder, clear, at
        )
        try:
            refuse_unmaskable(clear, f"'{key}'")
        except InputError as error:
            reference = Unusable(f"{error.message}; {error.hint}", at)
        return Setting(name, reference, rank)

    def _arguments(self, key: str, value: object, path: Keys) -> tuple[Setting, ...]:
        text = self._document.text(path)
        if value is None or not isinstance(value, str) or self._template(key, text, path):
            return ()
        at = self._document.value(path)
        known, unused = understand(text)
        for each in unused:
            self._notes.warn(f"'{key}': {each}", at)
        proxy = known.pop("proxy_command", None)
        settings = (
            check(self._document, self._problems, name, part, path, rank=ARGUMENTS[key])
            for name, part in known.items()
        )
        usable = tuple(setting for setting in settings if setting is not None)
        if proxy is None or "proxy_jump" in known:
            return usable
        why = f"fleet does not run the ProxyCommand of '{key}'; use -J HOST or -o ProxyJump=HOST"
        return (*usable, Setting("proxy_jump", Unusable(why, at), ARGUMENTS[key]))

    def _own(self, key: str, value: object, path: Keys) -> tuple[Setting, ...]:
        """Return the settings of one of fleet's own keys in an Ansible file.

        The key may also be a variable of the user with another meaning.
        """
        at = self._document.key(path)
        if key in self._twins:
            self._ignore(key, path)
            self._notes.warn(
                f"fleet ignores '{key}', because an ansible_ variable sets the same value", at
            )
            return ()
        if value is None:
            return (Setting(key, None, 9),)
        trial = Problems(InventoryError)
        setting = check(self._document, trial, key, value, path, rank=9)
        if setting is None:
            self._ignore(key, path)
            why = trial.errors[0].message
            self._notes.warn(f"fleet ignores the key '{key}': {why}", at)
            return ()
        if key in _COMMON:
            self._notes.warn(
                f"fleet uses the variable '{key}' as its own setting of that name; rename "
                "the variable if "
                "you use it for something else",
                at,
            )
        return (setting,)
