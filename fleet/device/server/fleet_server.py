"""Starts the server of a release: `python3 -I -B fleet_server.py FOLDER`.

FOLDER contains config.json and token (0600). The other modules are next to this file. In a release
this is a folder of links, which must not be resolved.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from fleet.device.server.server import main

if __name__ == "__main__":
    main(sys.argv[1])
