"""An emulator of adbd: the device's side of the adb protocol, for the real adb server.

It serves an ordinary user, and shows states that a real adbd cannot show on demand:
unauthorized, recovery, no shell_v2. `python -m fleet.lab.adbd --port 5555 --root DIR`.
Protocol: packages/modules/adb/{protocol.txt,SERVICES.TXT,SYNC.TXT} of AOSP.
"""
