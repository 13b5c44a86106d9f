"""The options of a deploy that are not part of the playbook."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field

from fleet.engine.transfer.context import TransferOptions
from fleet.model.lockfile import Lock


class DeployOptions(Struct, frozen=True, kw_only=True):
    """The options of a deploy.

    `run` is auto (run if something changed), always or never. `lock` permits only the locked files.
    `frozen` uses the runtimes and files that the lock names, even if the playbook would choose
    others by now, and fetches nothing. `tags` are written into the records of the runs.
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
