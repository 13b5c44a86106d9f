"""A report: how Debian's packages of today differ from the table and the lab.

`python -m tests.contract.today` prints it; a difference is no failure. What is to be done about
one: read it, change fleet/data/fastrpc.yaml and fleet/lab/debs.py, and pin the new texts.
"""

from __future__ import annotations

import re

from fleet.data import load
from fleet.device.texts import text_of
from fleet.lab.debs import debian
from fleet.ops.system.packaging import packagings
from tests.contract.compare import differences, machines, of_table, shells
from tests.contract.package import Package, of_lab
from tests.contract.pinned import PACKAGES, SHELLS, SUITES, SUPPORT, archive


def lab(suite: str = "sid") -> dict[str, Package]:
    """Return the lab's packages of a suite by name."""
    return {deb.name: of_lab(deb) for deb in debian(suite)}


def places_of_shells() -> list[str]:
    """Return where the probe looks for shells of the DSP."""
    text = text_of("probe.sh")
    (line,) = [line for line in text.splitlines() if "/usr/share/hexagon-dsp/" in line]
    return re.findall(r'"\$R"([^\s;]+)', line)


def all_differences(real: dict[str, Package], ours: dict[str, Package]) -> list[str]:
    """Return the differences of all packages, and those of the table."""
    found = [line for name in PACKAGES for line in differences(real[name], ours[name])]
    return found + of_table(real.values(), packagings()["debian"])


def against_ours(real: dict[str, Package], suite: str) -> list[str]:
    """Return what the table, the lab, the probe and the table of chips do not say of packages."""
    found = all_differences(real, lab(suite))
    if SHELLS in real:
        known = {model for soc in load("socs")["socs"] for model in soc.get("models", ())}
        found += shells(real[SHELLS], places_of_shells())
        found += [f"{SHELLS}: no chip has {name}" for name in machines(real[SHELLS]) - known]
    return found


def report(suite: str) -> list[str]:
    """Return the lines of the report about a suite."""
    try:
        real = archive(suite)
    except OSError as error:
        return [f"{suite}: the archive cannot be read: {error}"]
    found = against_ours(real, suite)
    words = f"{len(found)} differences from the table and the lab" if found else "no difference"
    return [f"{suite}: {SUPPORT} {real[SUPPORT].version}, {words}", *(f"  {one}" for one in found)]


if __name__ == "__main__":
    for name in SUITES:
        print("\n".join(report(name)))  # noqa: T201
