# ruff: noqa: ANN201, PLC0415
"""One push with one Python library, under the interpreter of the peers.

python peer_client.py TOOL SOURCE FOLDER PORT USER KEY KNOWN_HOSTS

Prints the seconds from before the connection to the end of the push as `inner`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path, PurePosixPath

GCM = "aes128-gcm@openssh.com"
TOOL, SOURCE, FOLDER, PORT, USER, KEY, KNOWN = (sys.argv + [""] * 8)[1:8]
HERE = Path(SOURCE)
THERE = str(PurePosixPath(FOLDER, HERE.name))


def pairs():
    """(folder there, [(file here, file there)]), parents first."""
    for folder, _, files in os.walk(SOURCE):
        there = PurePosixPath(THERE, Path(folder).relative_to(HERE).as_posix())
        yield str(there), [(str(Path(folder, one)), str(there / one)) for one in files]


def only_gcm():
    import paramiko

    known = paramiko.Transport._preferred_ciphers
    return {"ciphers": [one for one in known if one != GCM]} if GCM in known else {}


def paramiko_push():
    import paramiko

    client = paramiko.SSHClient()
    client.load_host_keys(KNOWN)
    began = time.perf_counter()
    client.connect(
        "127.0.0.1",
        int(PORT),
        USER,
        key_filename=KEY,
        allow_agent=False,
        look_for_keys=False,
        disabled_algorithms=only_gcm(),
    )
    if TOOL == "paramiko-cat":
        stdin, stdout, _ = client.exec_command("cat > '" + THERE + "'")
        with HERE.open("rb") as source:
            while chunk := source.read(1 << 18):
                stdin.channel.sendall(chunk)
        stdin.channel.shutdown_write()
        assert stdout.channel.recv_exit_status() == 0
    else:
        sftp = client.open_sftp()
        if HERE.is_dir():
            for folder, files in pairs():
                try:
                    sftp.mkdir(folder)
                except OSError:
                    sftp.stat(folder)
                for here, there in files:
                    sftp.put(here, there)
        else:
            sftp.put(SOURCE, THERE)
    seconds = time.perf_counter() - began
    client.close()
    return seconds


def fabric_push():
    from fabric import Connection

    began = time.perf_counter()
    kwargs = {"key_filename": KEY, "allow_agent": False, "look_for_keys": False}
    kwargs["disabled_algorithms"] = only_gcm()
    connection = Connection("127.0.0.1", USER, int(PORT), connect_kwargs=kwargs)
    if HERE.is_dir():
        for folder, files in pairs():
            connection.run("mkdir -p '" + folder + "'", hide=True)
            for here, there in files:
                connection.put(here, there)
    else:
        connection.put(SOURCE, THERE)
    seconds = time.perf_counter() - began
    connection.close()
    return seconds


async def asyncssh_push():
    import asyncssh

    began = time.perf_counter()
    async with asyncssh.connect(
        "127.0.0.1",
        int(PORT),
        username=USER,
        client_keys=[KEY],
        known_hosts=KNOWN,
        config=None,
        encryption_algs=[GCM],
    ) as connection:
        if TOOL == "asyncssh-scp":
            await asyncssh.scp(SOURCE, (connection, FOLDER), recurse=True)
        else:
            async with connection.start_sftp_client() as sftp:
                await sftp.put(SOURCE, THERE, recurse=True)
        return time.perf_counter() - began


def adbutils_push():
    """PORT is that of the adb server, USER the serial."""
    import adbutils

    began = time.perf_counter()
    device = adbutils.AdbClient(host="127.0.0.1", port=int(PORT)).device(USER)
    device.sync.push(SOURCE, THERE)
    return time.perf_counter() - began


def main():
    if TOOL.startswith("paramiko"):
        inner = paramiko_push()
    elif TOOL == "fabric":
        inner = fabric_push()
    elif TOOL == "adbutils":
        inner = adbutils_push()
    else:
        inner = asyncio.run(asyncssh_push())
    print("FIGURES", json.dumps({"inner": inner}))


if __name__ == "__main__":
    main()
