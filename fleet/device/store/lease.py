"""Leases as in docs/leases.md: the work of the lease scripts without a POSIX shell.

Files and folders are the same as on other systems: <place>/<kind>.<N>, of which the highest N
counts, with `owner`, `keep`, `step`, `released`. A generation is created by one rename, which fails
if another one exists. It also runs on POSIX, where the tests are.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass

from fleet.device.store.files import patiently, put
from fleet.device.store.stamp import say as say_lines


class FailedError(Exception):
    """No lease can be kept here; the text is the reason."""


def boot() -> str:
    """Return an id that changes with each boot, "" if the system has none.

    Windows counts its boots (value BootId below PrefetchParameters).
    """
    if sys.platform == "win32":
        import winreg

        path = (
            r"SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management"
            r"\PrefetchParameters"
        )
        with contextlib.suppress(OSError), winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, path) as key:
            return f"boot-{winreg.QueryValueEx(key, 'BootId')[0]}"
        return ""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as stream:
        return stream.read().strip()
    return ""


def uptime() -> int:
    """Return whole seconds since the boot."""
    if sys.platform == "win32":
        import ctypes

        count = ctypes.windll.kernel32.GetTickCount64
        count.restype = ctypes.c_ulonglong
        return int(count() // 1000)
    with open("/proc/uptime") as stream:
        return int(float(stream.read().split()[0]))


def line_of(path: str) -> list[str]:
    """Return the words of the first line of a small file, [] if it is missing."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.readline().split()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FailedError(f"{path} cannot be read by this user") from error


def number(text: str) -> int:
    """Parse at most nine digits without a leading zero; return -1 for anything else."""
    plain = text.isascii() and text.isdigit() and len(text) <= 9
    return int(text) if plain and str(int(text)) == text else -1


TAG = "fleet-lease 1"
MOST = 999_999_999


def say(*words: object) -> None:
    """Print one line of the answer."""
    say_lines(" ".join(map(str, words)))


def keep(path: str, text: str) -> None:
    """Write a small file and sync it; its temporary name is unique to this process."""
    put(path, text, f"{path}.{os.getpid()}", sync=True)


def place(make: bool) -> str:
    """Return the folder that all users share. If it is missing, `make` it or return ""."""
    own = os.environ.get("FLEET_LEASE_DIR")
    parent = own or os.environ.get("PROGRAMDATA") or "/var/tmp"  # noqa: S108
    folder = f"{parent}/fleet-lease".replace("\\", "/")
    if os.path.islink(folder):
        raise FailedError(f"{folder} is a symbolic link")
    if os.path.isdir(folder):
        return folder
    if os.path.exists(folder):
        raise FailedError(f"{folder} is no folder")
    if not make:
        return ""
    try:
        os.mkdir(folder)
        if os.name != "nt":
            os.chmod(folder, 0o1777)  # noqa: S103 - all users share it, as on other systems
    except FileExistsError:
        pass
    except OSError as error:
        raise FailedError(f"no folder for leases can be written: {parent}") from error
    return folder


@dataclass
class Generation:
    """A generation as it was read. `top` 0 means that there is none."""

    top: int = 0
    state: str = "free"
    left: int = 0
    busy: str = "idle"
    age: object = "-"
    owner: str = ""
    reason: str = ""
    run: str = ""
    token: str = ""
    mark: str = "none"


class Leases:
    """The leases below one folder at one moment."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.boot, self.now = boot(), uptime()
        if not self.boot:
            raise FailedError("uptime or boot id of the board cannot be read")

    def highest(self, kind: str, below: int = MOST) -> int:
        """Return the highest generation below a number, 0 if there is none."""
        numbers = [0]
        for name in os.listdir(self.folder):
            head, _, tail = name.rpartition(".")
            if head == kind and 0 < number(tail) < below:
                numbers.append(number(tail))
        return max(numbers)

    def look(self, kind: str, below: int = MOST) -> Generation:
        """Return the current generation with its holder."""
        top = self.highest(kind, below)
        if not top:
            return Generation()
        at = f"{self.folder}/{kind}.{top}/"
        _, owner, reason, run, token, born, since = (line_of(at + "owner") + [""] * 7)[:7]
        kb, ku, kl = (line_of(at + "keep") + [""] * 3)[:3]
        sb, su, sm, sp = (line_of(at + "step") + [""] * 4)[:4]
        generation = Generation(top, owner=owner, reason=reason, run=run, token=token)
        generation.mark = f"{token} {kb} {ku} {kl}/{sb} {su} {sm} {sp}"
        if os.path.exists(at + "released") or not token:
            return generation
        if kb == self.boot:
            generation.left = number(ku) - self.now if number(ku) >= 0 else 0
        elif kind == "reserve" and number(kl) >= 0:
            generation.left = number(kl) - self.now
        if sb == self.boot and number(su) >= 0:
            generation.left = max(generation.left, number(su) - self.now)
            if sm == "run" and number(su) > self.now:
                generation.busy = "run"
        if born == self.boot and number(since) >= 0:
            generation.age = self.now - number(since)
        if generation.left > 0:
            generation.state = "held"
        return generation

    def tell(self, word: str, kind: str, generation: Generation) -> None:
        """Print `word`, kind, number and holder of a generation."""
        held = (
            generation.owner,
            generation.reason,
            generation.run,
            generation.token,
            generation.left,
            generation.age,
            generation.busy,
        )
        say(word, kind, generation.top, *held)

    def spent(self, kind: str, generation: Generation) -> bool:
        """Return True if no higher number is possible, and print who made it. fleet never gets
        there.
        """
        if generation.top < MOST - 1:
            return False
        at = f"{self.folder}/{kind}.{generation.top}"
        say("spent", kind, maker_of(at), at)
        return True

    def fresh(self, token: str) -> str:
        """Return the temporary path of a new generation."""
        return f"{self.folder}/.new.{self.now}.{token}"

    def create(self, kind: str, n: int, words: tuple[str, ...], ttl: int, released: bool) -> bool:
        """Create generation `n`, perhaps already `released`; return False if another was first."""
        new, there = self.fresh(words[3]), f"{self.folder}/{kind}.{n}"
        try:
            shutil.rmtree(new, ignore_errors=True)
            os.mkdir(new)
            keep(new + "/owner", f"1 {' '.join(words)} {self.boot} {self.now}\n")
            keep(new + "/keep", f"{self.boot} {self.now + ttl + 1} {ttl}\n")
            if released:
                keep(new + "/released", "")
            os.rename(new, there)
        except OSError as error:
            shutil.rmtree(new, ignore_errors=True)
            if os.path.lexists(there):
                return False
            raise FailedError(f"no lease can be made in {self.folder}: {error}") from error
        return True

    def withdraw(self, kind: str, n: int, token: str) -> None:
        """Rename a generation away, then delete it."""
        new = self.fresh(token)
        with contextlib.suppress(OSError):
            patiently(os.rename, f"{self.folder}/{kind}.{n}", new)
            shutil.rmtree(new, ignore_errors=True)

    def clear(self, kind: str, before: int) -> None:
        """Remove old generations and leftovers of killed processes. Those of other users stay."""
        for name in os.listdir(self.folder):
            head, _, tail = name.rpartition(".")
            old = head == kind and 0 < number(tail) < before
            made = number(name.split(".")[2]) if name.startswith(".new.") else -1
            if old or (made >= 0 and (made > self.now or self.now - made > 60)):
                shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)


def maker_of(path: str) -> str:
    """Return the login name or number of the owner, `-` if the system does not report it."""
    if os.name == "nt":
        return "-"
    import pwd

    number_of_user = os.stat(path).st_uid
    try:
        return pwd.getpwuid(number_of_user).pw_name
    except KeyError:
        return str(number_of_user)


def take(kind: str, me: str, why: str, job: str, mine: str, ttl: str, dead: str) -> bool:
    """Run `lease_take` (device/sh/lease/lease_take.sh); return whether the lease was acquired."""
    leases = Leases(place(True))
    say("place", leases.folder)
    other = "reserve" if kind == "write" else "write"
    held = leases.look(other)
    if held.state == "held" and held.owner != me:
        leases.tell("held", other, held)
        return False
    now = leases.look(kind)
    if leases.spent(kind, now):
        return False
    if now.state == "held":
        again = kind == "reserve" and now.owner == me
        ended = dead == f"{now.top}:{now.token}" and now.busy == "idle"
        if not again and not ended:
            leases.tell("held", kind, now)
            return False
    n = now.top + 1
    ours = leases.create(kind, n, (me, why, job, mine), int(ttl), released=False)
    if ours:
        # The holder may have renewed between the check and the rename: one of both sides sees it.
        before = leases.look(kind, n)
        ours = leases.highest(kind) == n and (before.top, before.mark) == (now.top, now.mark)
        if not ours:
            leases.withdraw(kind, n, mine)
    if not ours:
        return refuse(leases, kind)
    if kind == "write":
        held = leases.look("reserve")
        if held.state == "held" and held.owner != me:
            leases.withdraw(kind, n, mine)
            leases.tell("held", "reserve", held)
            return False
    say("got", kind, n)
    leases.clear(kind, n - 1)
    return True


def refuse(leases: Leases, kind: str) -> bool:
    """Print the holder, or that several tried at once. The lease is not ours in any case."""
    generation = leases.look(kind)
    if generation.state == "held":
        leases.tell("held", kind, generation)
    else:
        say("raced")
    return False


def drop(me: str, why: str, mine: str, force: str) -> None:
    """Run `lease_drop`: end the holder's lease by a generation that is released at once."""
    if not place(False):
        return
    leases = Leases(place(True))
    for kind in ("reserve", "write"):
        for turn in range(5):
            generation = leases.look(kind)
            if leases.spent(kind, generation) or generation.state != "held":
                break
            if force != "force" and (kind == "write" or generation.owner != me):
                leases.tell("held", kind, generation)
                break
            if leases.create(kind, generation.top + 1, (me, why, "=", mine), 0, released=True):
                leases.tell("dropped", kind, generation)
                break
            if turn == 4:
                say("raced")


def free(folder: str, n: str, mine: str) -> None:
    """Run `lease_free`: give back a write lease."""
    at = f"{folder}/write.{n}"
    if (line_of(at + "/owner") + [""] * 5)[4] == mine:
        keep(at + "/released", "")
        say("freed")


def who() -> None:
    """Run `lease_who`, which only reads."""
    folder = place(False)
    if not folder:
        say("top", "write", 0)
        return
    leases = Leases(folder)
    for kind in ("write", "reserve"):
        generation = leases.look(kind)
        say("top", kind, generation.top)
        if not leases.spent(kind, generation) and generation.state == "held":
            leases.tell("held", kind, generation)


def answer(work: Callable[..., object], *args: str) -> bool:
    """Run `work` in the frame of an answer; return True if it allows the following command."""
    on: object = False
    say(TAG)
    try:
        on = work(*args)
    except FailedError as error:
        say("failed", error)
    except OSError as error:
        say("failed", "{}: {}".format(error.filename or "the folder of leases", error.strerror))
    say("end")
    return bool(on)


LOST = 113


class Guard:
    """A step under a write lease. Nothing starts under a lost lease."""

    def __init__(self, folder: str, n: str, token: str, ttl: str, mode: str) -> None:
        self.folder, self.n, self.token = folder, int(n), token
        self.ttl, self.mode, self.frees = int(ttl), mode.rstrip("f"), mode.endswith("f")
        self.me = f"{folder}/write.{n}"

    def look(self) -> tuple[bool, str]:
        """Return (whether the lease is active, its token), and set boot and time."""
        self.boot, self.now = boot(), uptime()
        left = False
        for name in ("keep", "step"):
            words = (line_of(f"{self.me}/{name}") + ["", ""])[:2]
            left = left or (words[0] == self.boot and number(words[1]) > self.now)
        return left, (line_of(self.me + "/owner") + [""] * 5)[4]

    def lost(self, why: str) -> int:
        """Report the loss and return the status."""
        with contextlib.suppress(OSError, FailedError):
            top = Leases(self.folder).highest("write")
            by = " ".join(line_of(f"{self.folder}/write.{top}/owner"))
            sys.stderr.write(f"fleet-lease-lost {self.token} {why} {by}\n")
            return LOST
        sys.stderr.write(f"fleet-lease-lost {self.token} {why}\n")
        return LOST

    def begin(self) -> int:
        """Renew the lease, then check that it is still the newest; return 0 to continue."""
        left, token = self.look()
        if token != self.token:
            return self.lost("gone")
        if os.path.exists(self.me + "/released"):
            return self.lost("released")
        if not left and self.mode != "revive":
            return self.lost("expired")
        until = self.now + self.ttl + 1
        if self.mode in ("keep", "revive"):
            keep(self.me + "/keep", f"{self.boot} {until} {self.ttl}\n")
        else:
            until = max(until, self.now + int(self.mode) + 1)
            keep(self.me + "/step", f"{self.boot} {until} run {os.getpid()}\n")
        if Leases(self.folder).highest("write") != self.n:
            return self.lost("taken")
        return 0

    def end(self, status: int) -> None:
        """End the step, unless a later step runs already. A lost lease stays lost."""
        left, _ = self.look()
        mine = (line_of(self.me + "/step") + [""] * 4)[3] == str(os.getpid())
        if mine and left and self.frees and status == 0:
            keep(self.me + "/released", "")
            sys.stderr.write(f"fleet-lease-freed {self.token}\n")
        elif mine and left:
            until = self.now + self.ttl + 1
            keep(self.me + "/step", f"{self.boot} {until} idle 0\n")


def guarded(words: tuple[str, ...], then: Callable[[tuple[str, ...]], int]) -> int:
    """Run `lease_guard`: five words, then those of the step, which `then` runs."""
    guard = Guard(*words[:5])
    try:
        status = guard.begin()
    except OSError as error:
        sys.stderr.write(f"the lease cannot be renewed in {guard.me}: {error}\n")
        return 74
    if status or not words[5:]:
        return status
    done = then(words[5:])
    with contextlib.suppress(OSError, FailedError):
        guard.end(done)
    return done
