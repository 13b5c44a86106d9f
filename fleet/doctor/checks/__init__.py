"""The checks of the doctor, in the order of the layers. A crash of a check is a result too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from fleet.doctor.checks import board, bundle, fastrpc, runtime, system
from fleet.doctor.seen import Seen
from fleet.model.cause import LAYERS
from fleet.model.diagnosis import UNKNOWN, Check


@dataclass(frozen=True)
class Look:
    """A check: its id, its layer, and a description."""

    id: str
    layer: str
    run: Callable[[Seen], Iterable[Check]]

    @property
    def about(self) -> str:
        """The first line of the docstring of the function, which `fleet doctor` lists."""
        return (self.run.__doc__ or "").strip().split("\n", 1)[0]


LOOKS = (
    Look("libc", "os", system.libc),
    Look("container", "os", system.container),
    Look("disk", "os", system.disk),
    Look("exec", "os", system.execute),
    Look("rename", "os", system.rename),
    Look("soc", "os", board.soc),
    Look("groups", "user", fastrpc.groups),
    Look("nodes", "nodes", fastrpc.nodes),
    Look("heap", "nodes", fastrpc.heap),
    Look("libcdsprpc", "library", fastrpc.library),
    Look("cdsprpcd", "daemon", board.daemon),
    Look("dsp", "dsp", board.dsp),
    Look("firmware", "dsp", board.firmware),
    Look("shells", "dsp", board.shells),
    Look("busy", "dsp", board.busy),
    Look("heat", "session", board.heat),
    Look("runtime", "runtime", runtime.files),
    Look("machine", "runtime", runtime.machine),
    Look("stub", "runtime", runtime.stub),
    Look("skel", "runtime", runtime.skel),
    Look("builds", "runtime", runtime.builds),
    Look("needs", "runtime", runtime.needs),
    Look("elsewhere", "runtime", runtime.elsewhere),
    Look("paths", "runtime", runtime.paths),
    Look("bundle", "bundle", bundle.contexts),
    Look("config", "bundle", bundle.configs),
)


def every(sample: Seen, only: Iterable[str] = ()) -> Iterator[Check]:
    """Yield the results of all checks, or of those whose id or layer is in `only`."""
    wanted = set(only)
    for look in sorted(LOOKS, key=lambda check: LAYERS.index(check.layer)):
        if wanted and not wanted & {look.id, look.layer}:
            continue
        try:
            yield from look.run(sample)
        except Exception as error:  # noqa: BLE001 - the border between checks
            yield Check(
                look.id, look.layer, UNKNOWN, f"the check failed: {type(error).__name__}: {error}"
            )
