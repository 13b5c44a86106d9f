#!/usr/bin/python3
"""A character device in user space (CUSE), so that the kernel sends real uevents for it.

`cuse_node.py fastrpc-cdsp`: opens and closes well, has no DSP behind it (emulated).
Message layouts: include/uapi/linux/fuse.h.
"""

import os
import struct
import sys

INIT, OPEN = 4096, 14
HEADER = struct.Struct("<IIQQIIIHH")


def main(name: str) -> None:
    link = os.open("/dev/cuse", os.O_RDWR)
    while True:
        message = os.read(link, 1 << 17)
        _, opcode, unique, *_ = HEADER.unpack_from(message)
        body = b""
        if opcode == INIT:
            major, minor = struct.unpack_from("<II", message, HEADER.size)
            fields = (major, minor, 0, 0, 4096, 4096, 0, 0, *[0] * 10)
            body = struct.pack("<18I", *fields) + f"DEVNAME={name}\0".encode()
        elif opcode == OPEN:
            body = struct.pack("<QII", 0, 0, 0)
        os.write(link, struct.pack("<IiQ", 16 + len(body), 0, unique) + body)


main(sys.argv[1])
