"""Leases as docs/leases.md has them: the work of the lease scripts where no POSIX shell is.

The same folders and files as on other systems: <place>/<kind>.<N>, of which the highest N counts,
with `owner`, `keep`, `step`, `released`. A generation comes into being by one rename, which fails
where another one is. Runs on POSIX too, where the tests are.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass

from fleet.device.store.clock import FailedError, boot, line_of, number, uptime
from fleet.device.store.files import patiently, put
from fleet.device.store.stamp import say as say_lines

TAG = "fleet-lease 1"
MOST = 999_999_999


def say(*words: object) -> None:
    """One line of the answer."""
    say_lines(" ".join(map(str, words)))


def keep(path: str, text: str) -> None:
    """A small file, on the disk; its name until then is no other process's."""
    put(path, text, f"{path}.{os.getpid()}", sync=True)


def place(make: bool) -> str:
    """The folder that all users share; "" when there is none and none is to be made."""
    own = os.environ.get("FLEET_LEASE_DIR")
    parent = own or os.environ.get("PROGRAMDATA") or "/var/tmp"  # noqa: S108
    found = f"{parent}/fleet-lease".replace("\\", "/")
    if os.path.islink(found):
        raise FailedError(f"{found} is a symbolic link")
    if os.path.isdir(found):
        return found
    if os.path.exists(found):
        raise FailedError(f"{found} is no folder")
    if not make:
        return ""
    try:
        os.mkdir(found)
        if os.name != "nt":
            os.chmod(found, 0o1777)  # noqa: S103 - all users share it, as on other systems
    except FileExistsError:
        pass
    except OSError as error:
        raise FailedError(f"no folder for leases can be written: {parent}") from error
    return found


@dataclass
class Generation:
    """One generation as it was read. `top` 0: there is none."""

    top: int = 0
    state: str = "free"
    left: int = 0
    busy: str = "idle"
    age: object = "-"
    owner: str = ""
    reason: str = ""
    run: str = ""
    token: str = ""
    seen: str = "none"


class Leases:
    """The leases below one folder, at one moment."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.boot, self.now = boot(), uptime()
        if not self.boot:
            raise FailedError("uptime or boot id of the board cannot be read")

    def highest(self, kind: str, below: int = MOST) -> int:
        """The highest generation, below a number."""
        found = [0]
        for name in os.listdir(self.folder):
            head, _, tail = name.rpartition(".")
            if head == kind and 0 < number(tail) < below:
                found.append(number(tail))
        return max(found)

    def look(self, kind: str, below: int = MOST) -> Generation:
        """Who holds."""
        top = self.highest(kind, below)
        if not top:
            return Generation()
        at = f"{self.folder}/{kind}.{top}/"
        _, owner, reason, run, token, born, since = (line_of(at + "owner") + [""] * 7)[:7]
        kb, ku, kl = (line_of(at + "keep") + [""] * 3)[:3]
        sb, su, sm, sp = (line_of(at + "step") + [""] * 4)[:4]
        seen = Generation(top, owner=owner, reason=reason, run=run, token=token)
        seen.seen = f"{token} {kb} {ku} {kl}/{sb} {su} {sm} {sp}"
        if os.path.exists(at + "released") or not token:
            return seen
        if kb == self.boot:
            seen.left = number(ku) - self.now if number(ku) >= 0 else 0
        elif kind == "reserve" and number(kl) >= 0:
            seen.left = number(kl) - self.now
        if sb == self.boot and number(su) >= 0:
            seen.left = max(seen.left, number(su) - self.now)
            if sm == "run" and number(su) > self.now:
                seen.busy = "run"
        if born == self.boot and number(since) >= 0:
            seen.age = self.now - number(since)
        if seen.left > 0:
            seen.state = "held"
        return seen

    def tell(self, word: str, kind: str, seen: Generation) -> None:
        """A line about a holder."""
        held = (seen.owner, seen.reason, seen.run, seen.token, seen.left, seen.age, seen.busy)
        say(word, kind, seen.top, *held)

    def spent(self, kind: str, seen: Generation) -> bool:
        """Whether no number comes after that one; says who made it. Fleet never gets there."""
        if seen.top < MOST - 1:
            return False
        at = f"{self.folder}/{kind}.{seen.top}"
        say("spent", kind, maker_of(at), at)
        return True

    def fresh(self, token: str) -> str:
        """Where a new generation is put together."""
        return f"{self.folder}/.new.{self.now}.{token}"

    def create(self, kind: str, n: int, words: tuple[str, ...], ttl: int, released: bool) -> bool:
        """Put generation `n` there in one rename; False when another one was first."""
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
        """Out of sight in one rename, then away."""
        new = self.fresh(token)
        with contextlib.suppress(OSError):
            patiently(os.rename, f"{self.folder}/{kind}.{n}", new)
            shutil.rmtree(new, ignore_errors=True)

    def clear(self, kind: str, before: int) -> None:
        """Old generations, and what killed takers left. Those of others are theirs."""
        for name in os.listdir(self.folder):
            head, _, tail = name.rpartition(".")
            old = head == kind and 0 < number(tail) < before
            made = number(name.split(".")[2]) if name.startswith(".new.") else -1
            if old or (made >= 0 and (made > self.now or self.now - made > 60)):
                shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)


def maker_of(path: str) -> str:
    """Login name or number of whose it is; `-` where the system does not tell it."""
    if os.name == "nt":
        return "-"
    import pwd

    number_of_user = os.stat(path).st_uid
    try:
        return pwd.getpwuid(number_of_user).pw_name
    except KeyError:
        return str(number_of_user)


def take(kind: str, me: str, why: str, job: str, mine: str, ttl: str, dead: str) -> bool:
    """`lease_take`: see device/sh/lease/lease_take.sh. Whether it is there."""
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
        # The holder may have renewed between our look and our rename: it sees us, or we see that.
        before = leases.look(kind, n)
        ours = leases.highest(kind) == n and (before.top, before.seen) == (now.top, now.seen)
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
    """Say who holds, else that several were at it. Never is the lease ours then."""
    seen = leases.look(kind)
    if seen.state == "held":
        leases.tell("held", kind, seen)
    else:
        say("raced")
    return False


def drop(me: str, why: str, mine: str, force: str) -> None:
    """`lease_drop`: end what holds, by a generation that is released at once."""
    if not place(False):
        return
    leases = Leases(place(True))
    for kind in ("reserve", "write"):
        for turn in range(5):
            seen = leases.look(kind)
            if leases.spent(kind, seen) or seen.state != "held":
                break
            if force != "force" and (kind == "write" or seen.owner != me):
                leases.tell("held", kind, seen)
                break
            if leases.create(kind, seen.top + 1, (me, why, "=", mine), 0, released=True):
                leases.tell("dropped", kind, seen)
                break
            if turn == 4:
                say("raced")


def free(folder: str, n: str, mine: str) -> None:
    """`lease_free`: give a write lease back."""
    at = f"{folder}/write.{n}"
    if (line_of(at + "/owner") + [""] * 5)[4] == mine:
        keep(at + "/released", "")
        say("freed")


def who() -> None:
    """`lease_who`: reads only."""
    folder = place(False)
    if not folder:
        say("top", "write", 0)
        return
    leases = Leases(folder)
    for kind in ("write", "reserve"):
        seen = leases.look(kind)
        say("top", kind, seen.top)
        if not leases.spent(kind, seen) and seen.state == "held":
            leases.tell("held", kind, seen)


def answer(work: Callable[..., object], *args: str) -> bool:
    """The answer in its frame. Whether a command may go on behind it."""
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
