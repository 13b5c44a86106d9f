"""A phone made of namespaces: real adbd over an Android-like root, as the user shell."""

from __future__ import annotations

from fleet.lab.androidroot import ADBD
from fleet.lab.linked import LinkedBoard
from fleet.lab.namespace import boot_clock, boot_script, confined, unshare
from fleet.lab.phoneprofiles import phone_profile
from fleet.lab.process import start_logged

ADBD_PORT = 5555


class NamespacePhone(LinkedBoard):
    """Starts, enters and ends one phone."""

    option = "--phone-port"
    address = ("127.0.0.1", ADBD_PORT)

    def start(self) -> None:
        """Begin to boot; `wait` for the end of it."""
        script = boot_script("phone.sh")
        nodes = " ".join(phone_profile(self.board.profile).nodes)
        words = (str(self._dir), str(self._base), self.board.name, nodes, ADBD)
        argv = [*unshare(), *boot_clock(), *confined(), "/bin/bash", "-c", script, "phone", *words]
        self._init = start_logged(argv, self._log)
