"""Layouts of owners, modes, groups, links and mounts, and what fleet does in each.

    python -m tests.config.layouts FOLDER

Runs `fleet status` (or the command of the layout) in each as the user of the layout, in a mount
namespace with users and groups of its own, and prints what happened as JSON. Needs root.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import select
import socket
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

USERS = {"root": 0, "me": 5001, "bob": 5002, "eve": 4001}
GROUPS = {  # name -> number, members; `users` is the first group of two users, `domain` unlisted
    "root": (0, ""), "me": (5001, ""), "eve": (4001, ""), "lab": (6001, "me,eve"),
    "empty": (6002, ""), "alone": (6003, "me"), "users": (100, ""), "domain": (7001, ""),
}  # fmt: skip
FIRST_GROUP = {"bob": "users", "eve": "eve"}
PASSWD = "".join(
    f"{name}:x:{uid}:{GROUPS[FIRST_GROUP.get(name, name)][0]}::/nonexistent:/bin/sh\n"
    for name, uid in USERS.items()
)
GROUP = "".join(
    f"{name}:x:{gid}:{members}\n" for name, (gid, members) in GROUPS.items() if name != "domain"
)
OWN = "me 755 p, me 644 p/fleet.yaml, me 644 p/inv.yaml, "
EVES = OWN.replace("me ", "eve ")
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_REC_PRIVATE, MS_BIND = 0x44000, 0x1000
PR_SET_DUMPABLE = 4
NO_NAMESPACE = 77
ACL = "system.posix_acl_access"


@dataclass(frozen=True)
class Layout:
    """`items`: OWNER[:GROUP] MODE PATH[ -> TARGET], separated by commas; the last one of a path
    counts. `used`: fleet takes the files. `git`: it does not call the folder dubious; None where
    git has no such question. `says` stands in what fleet prints.
    """

    name: str
    items: str
    used: bool
    git: bool | None = None
    says: str = ""
    me: str = "me"
    there: str = "p"  # the working folder
    command: tuple[str, ...] = ("status",)
    env: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    acl: Mapping[str, tuple[str, int]] = field(default_factory=dict)  # path -> user, permissions
    mount: str = ""  # a folder that is a file system of its own
    special: str = ""  # what no item can say


REFUSED = "is not trusted: "
LAYOUTS = (
    # What people have, and must work.
    Layout("own", OWN, True, True),
    Layout("umask 002, private group", "me 775 p, me 664 p/fleet.yaml, me 664 p/inv.yaml", True,
           True),
    Layout("group-writable, empty group", OWN + "me:empty 2775 p, me:empty 664 p/inv.yaml", True,
           True),
    Layout("group-writable, a group of me alone", OWN + "me:alone 2775 p", True, True),
    Layout("below a sticky folder", "root 1777 t, me 755 t/p, me 644 t/p/fleet.yaml, "
           "me 644 t/p/inv.yaml", True, True, there="t/p"),
    Layout("below a sticky folder for a group", "root:lab 1775 t, me 755 t/p, "
           "me 644 t/p/fleet.yaml, me 644 t/p/inv.yaml", True, True, there="t/p"),
    Layout("root's folder, me a user", OWN.replace("me ", "root "), True, False),
    Layout("root in root's folder", OWN.replace("me ", "root "), True, True, me="root"),
    Layout("a folder below", OWN + "me 755 p/a, me 755 p/a/b", True, True, there="p/a/b",
           says="using ../../fleet.yaml"),
    Layout("a folder below, for JSON", OWN + "me 755 p/a", True, True, there="p/a",
           command=("status", "--json"), says="!using "),
    Layout("eve's folder below mine", OWN + "eve 755 p/a", True, None, there="p/a"),
    Layout("my link to my file", "me 755 p, me 755 q, me 644 q/f.yaml, "
           "me 777 p/fleet.yaml -> ../q/f.yaml, me 644 p/inv.yaml", True, None),
    Layout("root's link to my folder", OWN + "root 777 l -> p", True, True, there="l"),
    Layout("sudo in the caller's folder", OWN, True, True, me="root", env={"SUDO_UID": "5001"}),
    Layout("an inventory elsewhere, by -i", "me 755 p, me 755 q, me 644 q/inv.yaml", True, None,
           command=("status", "-i", "@/q/inv.yaml")),
    Layout("an access list for reading", OWN, True, None, acl={"p/inv.yaml": ("eve", 4)}),
    Layout("an access list for root", OWN, True, None, acl={"p/inv.yaml": ("root", 6)}),
    Layout("an ssh config of mine", OWN + "me 644 p/cfg", True, None,
           texts={"p/inv.yaml": "ssh_config: cfg"}),
    Layout("another file system", OWN, True, True, mount="p"),
    Layout("a Windows drive of WSL", "me 777 p, me 777 p/fleet.yaml, me 777 p/inv.yaml", True, True,
           mount="p", special="drvfs", says="Windows drive, which keeps no owners"),
    Layout("a namespace in which / is nobody's", OWN, True, None, special="namespace"),
    # What somebody else has, and was accepted by name.
    Layout("eve's, FLEET_TRUST", EVES, True, None, env={"FLEET_TRUST": "/nowhere:@/p"}),
    Layout("eve's, config trust", EVES, True, None, special="trust p"),
    Layout("below eve's folder, config trust", "eve 755 e, " + EVES.replace(" p", " e/p"), True,
           None, there="e/p", special="trust e/p"),
    # What somebody else could change, and is refused.
    Layout("eve's", EVES, False, False, says=REFUSED + "@/p belongs to user eve (uid 4001)"),
    Layout("eve's, root", EVES, False, False, me="root", says="fleet config trust @/p"),
    Layout("eve's, root by sudo of me", EVES, False, False, me="root", env={"SUDO_UID": "5001"}),
    Layout("a checkout of me, root", OWN, False, False, me="root", says="FLEET_TRUST=@/p"),
    Layout("eve's fleet.yaml", OWN + "eve 644 p/fleet.yaml", False,
           says="@/p/fleet.yaml belongs to user eve"),
    Layout("eve's inventory", OWN + "eve 644 p/inv.yaml", False,
           says="inv.yaml belongs to user eve"),
    Layout("eve's folder between", OWN + "eve 755 p/i, me 644 p/i/inv.yaml", False,
           says="@/p/i belongs to user eve", texts={"p/fleet.yaml": "inventory: i/inv.yaml"}),
    Layout("my files in eve's folder", OWN + "eve 755 p", False, False),
    Layout("eve's folder above", "eve 755 e, " + OWN.replace(" p", " e/p"), False, True,
           there="e/p", says="fleet config trust @/e/p"),
    Layout("a group with eve, folder", OWN + "me:lab 2775 p", False, True,
           says="the group lab, which has the member eve"),
    Layout("a group with eve, file", OWN + "me:lab 664 p/inv.yaml", False, True),
    Layout("a first group of others", OWN + "me:users 664 p/inv.yaml", False, True,
           says="the member bob"),
    Layout("a group with unknown members", OWN + "me:domain 664 p/inv.yaml", False, True,
           says="whose members are not known here"),
    Layout("a file for everybody", OWN + "me 666 p/inv.yaml", False, True,
           says="can be written by every user"),
    Layout("a folder for everybody", OWN + "me 777 p", False, True),
    Layout("a folder for everybody above", "root 777 t, " + OWN.replace(" p", " t/p"), False, True,
           there="t/p"),
    Layout("directly in a sticky folder", OWN + "me 1777 p", False, True),
    Layout("an access list for writing", OWN, False, True, acl={"p/inv.yaml": ("eve", 6)},
           says="can be written by user eve (uid 4001) (access list)"),
    Layout("eve's, in a sticky folder above", "root 1777 t, eve 644 t/fleet.yaml, "
           "eve 644 t/inv.yaml, me 755 t/p", False, None, there="t/p",
           says="there is no fleet.yaml"),
    Layout("eve's link in a sticky folder", "root 1777 t, eve 777 t/fleet.yaml -> ../q/fleet.yaml, "
           "root 755 q, root 644 q/fleet.yaml, eve 644 t/inv.yaml", False, None, there="t"),
    Layout("my link to eve's file", OWN + "eve 755 q, eve 644 q/inv.yaml, "
           "me 777 p/inv.yaml -> ../q/inv.yaml", False, None, says="@/q belongs to user eve"),
    Layout("eve's link to a folder of mine", OWN + "eve 777 p/i -> ../q, me 755 q, "
           "me 644 q/inv.yaml", False, None, texts={"p/fleet.yaml": "inventory: i/inv.yaml"}),
    Layout("a circle of links", OWN + "me 777 p/inv.yaml -> inv.yaml", False, None),
    Layout("eve's inventory, by -i", "me 755 p, eve 755 q, eve 644 q/inv.yaml", False, None,
           command=("status", "-i", "@/q/inv.yaml"), says="fleet config trust @/q"),
    Layout("eve's inventory, by FLEET_INVENTORY", "me 755 p, eve 755 q, eve 644 q/inv.yaml", False,
           None, env={"FLEET_INVENTORY": "../q/inv.yaml"}),
    Layout("eve's playbook", OWN + "eve 644 p/play.yaml", False, None,
           command=("plan", "play.yaml"), says="play.yaml belongs to user eve"),
    Layout("eve's ssh config", OWN + "eve 755 q, eve 644 q/cfg", False, None,
           texts={"p/inv.yaml": "ssh_config: ../q/cfg"}, says="cfg is not trusted"),
    Layout("an ssh config of a group with eve", OWN + "me:lab 664 p/cfg", False, None,
           texts={"p/inv.yaml": "ssh_config: cfg"}),
    Layout("eve's list of trusted folders", EVES, False, None, special="planted"),
    Layout("a relative FLEET_TRUST", EVES, False, None, env={"FLEET_TRUST": "."},
           says="is not an absolute path"),
    Layout("a name that begins like a trusted one", EVES + "eve 755 p/x", False, None,
           env={"FLEET_TRUST": "@/p/x:@/p-"}),
    Layout("out of a trusted folder", EVES + "eve 755 q, eve 644 q/inv.yaml, "
           "eve 777 p/inv.yaml -> ../q/inv.yaml", False, None, env={"FLEET_TRUST": "@/p"}),
)  # fmt: skip


def inventory(port: int, pwned: Path, more: str) -> str:
    """A program, a variable, and an address that listens for what they say."""
    return f"""all:
  vars: {{port: {port}, host: 127.0.0.1, connect_timeout: 300ms{", " * bool(more)}{more}}}
  hosts:
    runs: {{password: "cmd:touch {pwned}"}}
    reads: {{password: "env:TOKEN"}}
"""


def made(layout: Layout, base: Path, port: int) -> None:
    """The files of a layout below `base`."""
    items: dict[str, tuple[str, int, str]] = {}
    for item in filter(None, map(str.strip, layout.items.split(","))):
        who, mode, rest = item.split(" ", 2)
        path, _, target = rest.partition(" -> ")
        items[path] = (who, int(mode, 8), target)
    if layout.mount:
        (base / layout.mount).mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", base / layout.mount], check=True)
    for path, (_, _, leads) in items.items():
        place = base / path
        if leads:
            place.symlink_to(leads)
        elif place.suffix or place.name == "cfg":
            place.write_text(_text(layout, path, base, port))
        else:
            place.mkdir(exist_ok=True)
    if layout.git is not None:
        subprocess.run(["git", "init", "-q", base / layout.there.split("/a")[0]], check=True)
        owner = (base / layout.there.split("/a")[0]).resolve()
        for inner in (owner / ".git", *(owner / ".git").rglob("*")):
            os.chown(inner, *_ids(items[str(owner.relative_to(base))][0]))
    for path, (who, bits, leads) in items.items():
        os.chown(base / path, *_ids(who), follow_symlinks=False)
        if not leads:
            (base / path).chmod(bits)
    for path, (user, allowed) in layout.acl.items():
        os.setxattr(base / path, ACL, _acl(USERS[user], allowed))


def _ids(who: str) -> tuple[int, int]:
    user, _, group = who.partition(":")
    return USERS[user], GROUPS[group or user][0]


def _text(layout: Layout, path: str, base: Path, port: int) -> str:
    more = layout.texts.get(path, "")
    if path.endswith("inv.yaml"):
        return inventory(port, base / "out/PWN", more)
    if path.endswith("cfg"):
        return f'Match exec "touch {base}/out/PWN"\n  User me\n'
    if path.endswith("play.yaml"):
        return "name: x\nbundle: /etc\n"
    return more or "inventory: inv.yaml\n"


def _acl(user: int, allowed: int) -> bytes:
    nobody = 0xFFFFFFFF
    rules = [(1, 6, nobody), (2, allowed, user), (4, 4, nobody), (16, 6, nobody), (32, 4, nobody)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *rule) for rule in rules)


def _system(number: int) -> None:
    if number:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def own_mounts(folder: Path) -> None:
    """A mount namespace with users and groups of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    _system(libc.unshare(CLONE_NEWNS))
    _system(libc.mount(b"none", b"/", None, MS_REC_PRIVATE, None))
    for name, text in (("passwd", PASSWD), ("group", GROUP)):
        (folder / name).write_text(text)
        _system(libc.mount(bytes(folder / name), f"/etc/{name}".encode(), None, MS_BIND, None))


def forked(work: Callable[[], None], log: Path) -> tuple[int, str]:
    """The exit code and the output of `work` in a process of its own."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            sheet = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            for number in (1, 2):
                os.dup2(sheet, number)
            work()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:  # noqa: BLE001 - the parent shows it
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), log.read_text("utf-8", "replace")


def become(layout: Layout, base: Path, home: Path) -> None:
    """Be the user of a layout, in its folder, with its environment."""
    os.environ.update(
        {name: value.replace("@", str(base)) for name, value in layout.env.items()},
        FLEET_HOME=str(home), HOME=str(home), TOKEN="a-token-of-mine", PWD=str(base),
        GIT_CONFIG_NOSYSTEM="1",
    )  # fmt: skip
    gid = GROUPS[layout.me][0]
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    uid = USERS[layout.me]
    os.setresuid(uid, uid, uid)
    os.chdir(base / layout.there)


def tried(layout: Layout, folder: Path, port: int) -> Callable[[], None]:
    """The command of a layout, to be run in a process of its own."""
    base, home = folder, folder / "home"

    def run() -> None:
        from fleet.cli.main import main
        from fleet.config import trusted

        if layout.special == "drvfs":
            about = (base / layout.mount).stat().st_dev
            mounts = base / "out/mounts"
            mounts.write_text(
                f"74 60 {os.major(about)}:{os.minor(about)} / /mnt/c rw,noatime - 9p C:\\134 "
                "rw,dirsync,aname=drvfs;path=C:\\;uid=1000;gid=1000;symlinkroot=/mnt/,mmap\n"
            )
            trusted._MOUNTS = mounts
        become(layout, base, home)
        if layout.special == "namespace":
            libc = ctypes.CDLL(None)
            libc.prctl(PR_SET_DUMPABLE, 1)  # else its files in /proc are root's
            if libc.unshare(CLONE_NEWUSER):
                raise SystemExit(NO_NAMESPACE)
            uid = USERS[layout.me]
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            assert Path("/").stat().st_uid not in {0, uid}
        if layout.special.startswith("trust "):
            trusted.trust(base / layout.special.removeprefix("trust "))
        sys.argv = ["fleet", *(word.replace("@", str(base)) for word in layout.command)]
        main()

    return run


def asked_git(layout: Layout, base: Path) -> Callable[[], None]:
    """Whether git takes the folder."""

    def run() -> None:
        become(layout, base, base / "home")
        os.execvp("git", ["git", "rev-parse", "--git-dir"])

    return run


def outcome(layout: Layout, folder: Path, number: int) -> dict[str, object]:
    """What happened in one layout."""
    base = folder / f"layout{number}"
    base.mkdir()
    (base / "out").mkdir()
    (base / "out").chmod(0o1777)
    (base / "home").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        made(layout, base, port)
        os.chown(base / "home", *_ids(layout.me))
        if layout.special == "planted":
            (base / "home/trusted").write_text(f"{base}/p\n")
            os.chown(base / "home/trusted", *_ids("eve"))
        code, said = forked(tried(layout, base, port), base / "out/said")
        left = bool(select.select([server], [], [], 0)[0])
    git = None
    if layout.git is not None:
        git = forked(asked_git(layout, base), base / "out/git")[0] == 0
    return {
        "code": code, "said": said.replace(str(base), "@"), "left": left,
        "ran": (base / "out/PWN").exists(), "git": git,
    }  # fmt: skip


def imported(folder: Path) -> None:
    """Import here what the commands import: another user may not read this clone."""
    names = folder / "modules"

    def listed() -> None:
        base = folder / "first"
        for path in (base, base / "out", base / "home"):
            path.mkdir()
        layout = Layout("first", OWN, True, me="root", env={"FLEET_TRUST": str(base)})
        with socket.create_server(("127.0.0.1", 0)) as server:
            made(layout, base, server.getsockname()[1])
            with contextlib.suppress(SystemExit):
                tried(layout, base, 0)()
        names.write_text("\n".join(sys.modules))

    code, said = forked(listed, folder / "first.log")
    assert code == 0, said
    for name in names.read_text().split("\n"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for name in ("fleet.cli.deploy", "fleet.cli.init", "fleet.config.playbook", "grp"):
        importlib.import_module(name)


def main(folder: Path) -> None:
    """Print the outcome of each layout."""
    folder.chmod(0o755)
    for name in ("FLEET_TRUST", "FLEET_INVENTORY", "FLEET_PLAYBOOK", "SUDO_UID"):
        os.environ.pop(name, None)
    own_mounts(folder)
    imported(folder)
    found = {each.name: outcome(each, folder, number) for number, each in enumerate(LAYOUTS)}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
