"""An emulator of adbd: the device side of the adb protocol, for the real adb server.

It serves an ordinary user. It can also show states that a real adbd cannot show on demand:
unauthorized, recovery, and no shell_v2. Start it with `python -m fleet.lab.adbd --port 5555 --root
DIR`. Protocol: packages/modules/adb/{protocol.txt,SERVICES.TXT,SYNC.TXT} of AOSP.
"""
