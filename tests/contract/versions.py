"""Texts of FastRPC's versions that no archive has any more, made from those of Debian's 1.0.7.

That no word of them is ours is shown by the names that git gives the files of their sources.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from tests.contract.package import TEXTS

RULES, UNITS, SYSUSERS = TEXTS
# By version: the files of qualcomm/fastrpc at a commit, as `git ls-tree COMMIT files/` names them.
SOURCES = {
    # 5f0b6a33a19f3f7f0c06709846752a2caf64e413, 2026-06-08: SRCREV of meta-qcom's fastrpc_1.0.6.bb
    "1.0.6": {
        "60-fastrpc.rules": "546de35eebc59a807a34e73c5dccdc000b5b164c",
        "adsprpcd.service.in": "a16e136136ebaada7979dd4bf96abaf522a7220a",
        "adsprpcd_audiopd.service.in": "617e56eb6022383aa4f659b06bc9830d7771a5e2",
        "cdsp1rpcd.service.in": "dac5f8d4f0974703e015cbd6edff1fe481a502ad",
        "cdsprpcd.service.in": "70c4d948dcbae5eaa40a54a75f3d64f40ad145d1",
        "fastrpc.conf": "c55042a7fd5b907954dfd5550a164d2c3fd61084",
        "gdsp0rpcd.service.in": "15039416977deac011821a24f88a3c5c00ad145e",
        "gdsp1rpcd.service.in": "66d4bbc8ce8e951e6715b3b46e8e54cd0cf60d5e",
        "sdsprpcd.service.in": "150cacf275c208972f4d62dc236152e217c353ab",
    },
    # 8572ae1c45d38a4dc8853b1b9b6738207ab1ce94, 2026-03-06: SRCREV of meta-qcom's fastrpc_1.0.4.bb
    "1.0.4": {
        "adsprpcd.service": "ac9c9871f3127ae44056903147e8cbe1b43df98c",
        "adsprpcd_audiopd.service": "99bdf1aa1291e95d5255edb45ae4e3767b3ae0db",
        "cdsp1rpcd.service": "b0fc1ef92d77a39926295b67492239afdefd50ca",
        "cdsprpcd.service": "ae597c8b7453ac7a89c4bc972e595260b25752e9",
        "gdsp0rpcd.service": "259eaf22c1f0eba7fb5331a87699706462109908",
        "gdsp1rpcd.service": "e442bab5670bdd30c7a1620075581ea9792260d2",
        "sdsprpcd.service": "1586d75ae2c4b08f107619bae8d8f355bfb84bbc",
    },
}
# Of what fleet/lab/rules has below the comment that names the source.
LAB_RULES = {
    "ubuntu-ppa": "7d3b1dd2ac83714da436cbe753e831859945b0d4",
    "radxa": "e352196a7ea3d983d47c36473dde16973da2c709",
}
_INSTALL = "\n[Install]\nWantedBy=multi-user.target\n"


def texts_of(version: str, later: Mapping[str, str]) -> dict[str, str]:
    """Path → text of the rules, units and sysusers of a version, from those of Debian's 1.0.7."""
    found = {path: text for path, text in later.items() if path.startswith(TEXTS)}
    found = {path: text for path, text in found.items() if "/59-" not in path}
    for path in [path for path in found if path.startswith(UNITS)]:
        found[path] = re.sub(r"Restart(?:Prevent|Force)ExitStatus=.*\n", "", found[path])
        if version == "1.0.4":
            old = found[path].replace(r"\x2d", "-").replace("/usr/sbin/", "/usr/bin/")
            found[path] = old + _INSTALL
    return {path: text for path, text in found.items() if version != "1.0.4" or UNITS in path}


def names_of(version: str, texts: Mapping[str, str]) -> dict[str, str]:
    """File of the source → git's name for what we have of it."""
    found = {}
    for path, text in texts.items():
        name = path.rpartition("/")[2]
        if version != "1.0.4" and path.startswith(UNITS):
            name += ".in"
            found[name] = git_name(text.replace("/usr/sbin/", "@sbindir@/"))
        else:
            found[name] = git_name(text)
    return found


def git_name(text: str) -> str:
    """As `git hash-object` names it."""
    data = text.encode()
    return hashlib.sha1(b"blob %d\0%s" % (len(data), data), usedforsecurity=False).hexdigest()
