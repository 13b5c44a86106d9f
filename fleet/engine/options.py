"""How a deploy is to be gone about, beside what the playbook says."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field

from fleet.engine.transfer.context import TransferOptions
from fleet.model.lockfile import Lock


class DeployOptions(Struct, frozen=True, kw_only=True):
    """How to go about it. `run` is auto (when something changed), always or never.

    `lock`: deploy nothing but what is locked. `frozen`: take the runtimes and files that the
    lock names, also where the playbook would take others by now; nothing is fetched.
    `tags`: of the records of its runs.
    """

    run: str = "auto"
    verify: bool = False
    offline: bool = False
    accept_new: bool = False
    parallel: int | None = None
    allow_reboot: bool = False
    lock: Lock | None = None
    frozen: bool = False
    transfer: TransferOptions = field(default_factory=TransferOptions, name="pace")
    tags: tuple[str, ...] = ()
    PLAIN: ClassVar[str] = "* -lock"  # of a journal: a lock is read again from its own file
