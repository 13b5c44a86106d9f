"""The map from exceptions of paramiko and sockets to fleet's error classes."""

from __future__ import annotations

import errno
import os
import shlex
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import paramiko
from paramiko.ssh_exception import (
    BadHostKeyException,
    NoValidConnectionsError,
    PasswordRequiredException,
    ProxyCommandFailure,
)

from fleet.model.errors import (
    AuthError,
    ConnectionLostError,
    FleetError,
    InputError,
    UnreachableError,
    reason,
)
from fleet.model.home import disk_full
from fleet.model.inventory import Host
from fleet.transport.hostkeys import changed, fingerprint

_CURES = {
    errno.ECONNREFUSED: (
        "start sshd on the device, or correct `port:` in the inventory: the device is on, but "
        "no SSH server listens at this port; fleet config list (shows the port)"
    ),
    errno.EHOSTUNREACH: (
        "switch the device on, and check its cable and address: no device on the network has "
        "this address; fleet config list (shows the address)"
    ),
    errno.ENETUNREACH: "check the VPN and the network interfaces of this workstation: ip route",
}


@contextmanager
def mapped(host: Host, way: str, seconds: float, *, opening: bool = False) -> Iterator[None]:
    """Turn paramiko's and the socket's exceptions into a FleetError with device and cure.

    `way` and `seconds` are for its words. "No route" while `opening` means that the device is out
    of reach; later, that the connection broke.
    """
    try:
        yield
    except FleetError as error:
        error.device = error.device or host.name
        raise
    except BadHostKeyException as error:
        raise changed(host, fingerprint(error.key), fingerprint(error.expected_key)) from error
    except PasswordRequiredException as error:
        raise AuthError(
            "the private key is encrypted, but fleet has no passphrase for it",
            device=host.name,
            hint="load the key with ssh-add, or set `key_passphrase: env:NAME` in the inventory",
        ) from error
    except paramiko.AuthenticationException as error:
        raise AuthError(
            f"{way}: the device refuses the login: {error}",
            device=host.name,
            hint=f"{manual_command(host)}; check user, identity_file and password",
        ) from error
    except ProxyCommandFailure as error:
        raise UnreachableError(
            f"the ProxyCommand `{error.command}` of the ssh config ended: {error.error}",
            device=host.name,
            hint=f"{manual_command(host)}; correct ProxyCommand if that fails too",
        ) from error
    except (TimeoutError, socket.gaierror, NoValidConnectionsError) as error:
        raise _unreachable(host, way, seconds, error) from error
    except (paramiko.SSHException, EOFError, OSError) as error:
        known = disk_full(error) or _own_side(host, way, error)
        raise known or _broken(host, way, error, opening=opening) from error


def _own_side(host: Host, way: str, error: Exception) -> FleetError | None:
    """Return the error for a login that failed because of this workstation's files, else None."""
    text, keys = str(error), ", ".join(map(str, host.identity_files))
    if "No authentication methods available" in text:
        return AuthError(
            f"{way}: fleet has no key and no password for the login",
            device=host.name,
            hint="add `identity_file:` or `password: env:NAME` to the host in the inventory, or "
            f"load a key: ssh-add; to log in by hand: {manual_command(host)}",
        )
    if "private key file" in text:
        return AuthError(
            f"{way}: a file is not a private key{f' ({keys})' if keys else ''}: {text}",
            device=host.name,
            hint="correct `identity_file:` of the host in the inventory; it names the private key, "
            "not the .pub file",
        )
    if isinstance(error, OSError) and error.filename:
        missing = isinstance(error, FileNotFoundError)
        why = "does not exist" if missing else f"cannot be read: {reason(error)}"
        return InputError(
            f"the key file {error.filename} {why}",
            device=host.name,
            hint="correct `identity_file:` of the host in the inventory",
        )
    return None


def manual_command(host: Host) -> str:
    """Return the command of the ssh client for the same login, with the inventory's values only."""
    words = ["ssh"]
    words += ["-F", str(host.ssh_config)] if host.ssh_config else []
    words += ["-p", str(host.port)] if host.port else []
    words += ["-J", host.proxy_jump] if host.proxy_jump else []
    words += [word for key in host.identity_files for word in ("-i", str(key))]
    there = host.address or host.name
    return shlex.join([*words, f"{host.user}@{there}" if host.user else there])


def _unreachable(host: Host, way: str, seconds: float, error: Exception) -> UnreachableError:
    hint = "check the power and the address of the device: fleet config list"
    if isinstance(error, TimeoutError):
        why = f"no answer within {seconds:g} s"
    elif isinstance(error, socket.gaierror):
        why = f"the host name {host.address or host.name} cannot be resolved"
    else:
        why = str(error).replace("[Errno None] ", "")
    if isinstance(error, NoValidConnectionsError):
        numbers = {getattr(each, "errno", None) or 0 for each in error.errors.values()} - {0}
        why += f" ({', '.join(sorted(map(os.strerror, numbers)))})"
        if len(numbers) == 1:
            hint = _CURES.get(min(numbers), hint)
        if all(str(address[0]).startswith(("127.", "::1")) for address in error.errors):
            hint = _start_of_lab(host) or "start the tunnel, or the lab board: fleet lab up"
    return UnreachableError(f"{way}: {why}", device=host.name, hint=hint)


def _start_of_lab(host: Host) -> str:
    """Return the command for the lab whose files the inventory uses (fleet/lab/folder.py),
    else "".
    """
    for path in filter(None, (host.ssh_config, host.known_hosts, *host.identity_files)):
        if all((path.parent / name).is_file() for name in ("id_ed25519", "password", "ssh_config")):
            folder = os.path.relpath(path.parent)
            where = "" if folder == ".lab" else f" --dir {shlex.quote(folder)}"
            return f"fleet lab up{where} (starts the boards of this lab)"
    return ""


def _broken(host: Host, way: str, error: Exception, *, opening: bool) -> FleetError:
    text = str(error) or type(error).__name__
    if any(mark in text for mark in ("banner", "not a valid", "No existing session")):
        return UnreachableError(
            f"{way}: the server at that port is not an SSH server",
            device=host.name,
            hint="correct `host:` and `port:` in the inventory; fleet config list (shows them)",
        )
    if isinstance(error, paramiko.ChannelException):
        return UnreachableError(
            f"{way}: the jump host could not connect to the device ({error.text})",
            device=host.name,
            hint="check the power and the address of the device; `ssh` to the jump host and ping "
            "the device from there",
        )
    cure = _CURES.get(error.errno or 0) if isinstance(error, OSError) else None
    if cure and (opening or isinstance(error, ConnectionRefusedError)):
        return UnreachableError(f"{way}: {reason(error)}", device=host.name, hint=cure)
    if isinstance(error, paramiko.ssh_exception.IncompatiblePeer):
        return UnreachableError(
            f"{way}: fleet and the SSH server of the device support no common algorithm ({text})",
            device=host.name,
            hint="update the SSH server (sshd) on the device",
        )
    return ConnectionLostError(f"{way}: {reason(error)}", device=host.name)
