"""The peers: system tools of the PATH, and Python tools of another interpreter."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from .tools import Command, Push, Tool

CLIENT = Path(__file__).with_name("peer_client.py")
CAT = "cat over ssh"
CAT_HASHED = "cat, sha256sum, sync, mv"
TAR = "tar over ssh"
RSYNC = "rsync -a"
INPLACE = "rsync --inplace"
WHOLE = "rsync --whole-file"
SCP, SFTP = "scp", "sftp"
PARAMIKO, FABRIC = "paramiko put", "fabric put"
ASYNCSSH, ASYNCSSH_SCP = "asyncssh sftp", "asyncssh scp"
ANSIBLE, ANSIBLE_SYNC = "ansible copy", "ansible synchronize"
PYINFRA, PYINFRA_SYNC, PYINFRA_RSYNC = "pyinfra files.put", "pyinfra files.sync", "pyinfra rsync"
ADBUTILS = "adbutils push"


def shell(script: str, *args: object) -> tuple[str, ...]:
    """A script of ours with positional arguments."""
    return ("sh", "-c", script, "bench", *map(str, args))


def _there(push: Push) -> str:
    return f"{push.endpoint.inbox}/{push.source.name}"


def _ssh(push: Push, script: str) -> tuple[str, ...]:
    return (*push.wiring.ssh, push.endpoint.name, script)


def cat(push: Push) -> Command:
    there = shlex.quote(_there(push))
    return Command(
        shell('exec < "$1"; shift; exec "$@"', push.source, *_ssh(push, f"cat > {there}"))
    )


def cat_hashed(push: Push) -> Command:
    """What a careful person types; both ends hash, and the name appears at the end."""
    there = shlex.quote(_there(push))
    far = f"cat > {there}.part && sha256sum {there}.part && sync {there}.part"
    words = _ssh(push, f"{far} && mv {there}.part {there}")
    script = (
        'src=$1; shift; got=$("$@" < "$src"); set -- $(sha256sum "$src"); [ "${got%% *}" = "$1" ]'
    )
    return Command(shell(script, push.source, *words))


def tar(push: Push) -> Command:
    far = f"tar -C {shlex.quote(push.endpoint.inbox)} -xf -"
    script = 'top=$1 name=$2; shift 2; tar -C "$top" -cf - "$name" | "$@"'
    return Command(shell(script, push.source.parent, push.source.name, *_ssh(push, far)))


def scp(push: Push) -> Command:
    where = f"{push.endpoint.name}:{push.endpoint.inbox}/"
    return Command(("scp", "-q", "-r", "-F", str(push.wiring.ssh_config), str(push.source), where))


def sftp(push: Push) -> Command:
    batch = push.scratch / "batch"
    batch.write_text(f'put -r "{push.source}" "{push.endpoint.inbox}/"\n', "utf-8")
    config = ("-F", str(push.wiring.ssh_config))
    return Command(("sftp", "-q", *config, "-b", str(batch), push.endpoint.name))


def rsync(*options: str) -> Callable[[Push], Command]:
    def build(push: Push) -> Command:
        rsh = " ".join(push.wiring.ssh)
        where = f"{push.endpoint.name}:{push.endpoint.inbox}/"
        return Command(("rsync", "-a", *options, "-e", rsh, str(push.source), where))

    return build


def library(word: str) -> Callable[[Push], Command]:
    def build(push: Push) -> Command:
        one = push.endpoint
        words = (word, push.source, one.inbox, one.port, one.user)
        more = (push.wiring.identity, push.wiring.known_hosts)
        return Command((str(push.peers), str(CLIENT), *map(str, (*words, *more))))

    return build


def _beside(push: Push, program: str) -> str:
    """A program of the peers' environment."""
    return str((push.peers or Path()).with_name(program))


def ansible(push: Push, module: str) -> Command:
    """Every run opens its own connections: none of an earlier one waits for it."""
    arguments = f"src={push.source} dest={push.endpoint.inbox}/"
    if module != "copy":
        arguments += " use_ssh_args=yes"
    hosts = push.wiring.ansible_hosts
    argv = (_beside(push, "ansible"), "-i", str(hosts), "all", "-m", module, "-a", arguments)
    sockets = push.scratch / "ssh"
    sockets.mkdir()
    env = {
        "ANSIBLE_CONFIG": str(push.wiring.ansible_config),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(sockets),
        "PATH": f"{(push.peers or Path()).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    }
    return Command(argv, env)


def pyinfra(word: str) -> Callable[[Push], Command]:
    def build(push: Push) -> Command:
        inside = f"/{push.source.name}" if word in {"files.put", "files.sync"} else "/"
        return Command(
            (
                *(_beside(push, "pyinfra"), "-y", str(push.wiring.pyinfra_hosts), word),
                *(f"src={push.source}", f"dest={push.endpoint.inbox}{inside}"),
            )
        )

    return build


def _all() -> dict[str, Tool]:
    rsyncs = {"programs": ("rsync",), "there": ("rsync",), "get": "apt-get install rsync"}
    found = (
        Tool(CAT, cat, "reference", ("ssh",)),
        Tool(CAT_HASHED, cat_hashed, "reference", ("ssh", "sha256sum")),
        Tool(TAR, tar, "reference", ("ssh", "tar"), ("tar",)),
        Tool(SCP, scp, "peer", ("scp",)),
        Tool(SFTP, sftp, "peer", ("sftp",)),
        Tool(RSYNC, rsync(), "peer", **rsyncs),  # type: ignore[arg-type]
        Tool(INPLACE, rsync("--inplace"), "peer", **rsyncs),  # type: ignore[arg-type]
        Tool(WHOLE, rsync("--whole-file"), "peer", **rsyncs),  # type: ignore[arg-type]
        Tool(PARAMIKO, library("paramiko"), module="paramiko"),
        Tool(FABRIC, library("fabric"), module="fabric"),
        Tool(ASYNCSSH, library("asyncssh-sftp"), module="asyncssh"),
        Tool(ASYNCSSH_SCP, library("asyncssh-scp"), module="asyncssh"),
        Tool(ANSIBLE, lambda push: ansible(push, "copy"), module="ansible", there=("python3",)),
        Tool(
            ANSIBLE_SYNC,
            lambda push: ansible(push, "ansible.posix.synchronize"),
            programs=("rsync",),
            module="ansible_collections.ansible.posix",
            package="ansible",
            there=("python3", "rsync"),
            get="apt-get install rsync",
            main=False,
        ),
        Tool(PYINFRA, pyinfra("files.put"), module="pyinfra"),
        Tool(PYINFRA_SYNC, pyinfra("files.sync"), module="pyinfra"),
        Tool(PYINFRA_RSYNC, pyinfra("files.rsync"), module="pyinfra", there=("rsync",), main=False),
    )
    return {tool.name: tool for tool in found}


PEERS = _all()
