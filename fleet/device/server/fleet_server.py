"""Starts the server of a release: `python3 -I -B fleet_server.py FOLDER`.

FOLDER holds config.json and token (0600). The rest of the program stands beside this file;
in a release that is a folder of links, so the links must not be followed.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from fleet.device.server.server import main

if __name__ == "__main__":
    main(sys.argv[1])
