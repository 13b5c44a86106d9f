"""Opens a real NPU session on the device and prints the library's log.

`fleet_session.py LIBRARY SECONDS [CONTEXT [HOLD]]`: CONTEXT is a file, or `-` for standard input.
Without CONTEXT ("") only the device is created and held open for HOLD seconds. It needs Python 3.6
or later and ctypes, and writes no files. The log goes to standard output at once, followed by one
line `fleet-session {json}`: {"build": ..., "steps": [[name, code, text], ...]}. The function table
follows the public QAIRT header QnnInterface.h; measured with QAIRT 2.47 to 2.51.
"""

import ctypes as c
import json
import os
import sys
import threading
import time

LOG_PERROR = 0x20
LEVEL = 4  # verbose: only this level shows which file was tried
LETTERS = {1: "E", 2: "W", 3: "I", 4: "V", 5: "D"}
# Indexes in the table of functions that QnnInterface_getProviders returns.
BACKEND_CREATE, BACKEND_BUILD_ID = 1, 4
CONTEXT_CREATE_FROM_BINARY, CONTEXT_FREE = 13, 14
LOG_CREATE, LOG_FREE = 25, 27
DEVICE_CREATE, DEVICE_FREE = 40, 43
ERROR_MESSAGE, FUNCTIONS = 48, 50

LOG = c.CFUNCTYPE(None, c.c_char_p, c.c_uint32, c.c_uint64, c.c_void_p)


class Provider(c.Structure):
    """QnnInterface_t: its header, then the table of functions."""

    _fields_ = (
        ("backend_id", c.c_uint32),
        ("name", c.c_char_p),
        ("core", c.c_uint32 * 3),
        ("backend", c.c_uint32 * 3),
        ("functions", c.c_void_p * FUNCTIONS),
    )


def say(text: str) -> None:
    """Print one line at once, because the library may crash next."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def log_to_stdout() -> "c._FuncPointer":
    """Return a callback that prints the library's log."""
    libc = c.CDLL(None)
    libc.vsnprintf.argtypes = (c.c_void_p, c.c_size_t, c.c_char_p, c.c_void_p)

    def take(form: bytes, level: int, _: int, args: int) -> None:
        buffer = c.create_string_buffer(2048)
        libc.vsnprintf(buffer, len(buffer), form, args)
        text = buffer.value.decode("utf-8", "replace").strip()
        mark = "<%s>" % LETTERS.get(level, level)  # noqa: UP031 - Python 3.6
        say(text if text.startswith("<") else mark + " " + text)

    return LOG(take)


class Backend:
    """libQnnHtp, and the steps that were taken with it."""

    def __init__(self, path: str) -> None:
        self.library = c.CDLL(path)
        providers = c.POINTER(c.POINTER(Provider))()
        count = c.c_uint32()
        self.library.QnnInterface_getProviders(c.byref(providers), c.byref(count))
        if not count.value:
            raise OSError("the library has no QNN interface")
        self.table = providers[0].contents.functions
        self.steps = []  # type: list[list[object]]

    def call(self, place: int, *args: "tuple[type, object]") -> int:
        """Call the function at an index of the table; 0 is success."""
        kind = c.CFUNCTYPE(c.c_uint64, *(argument for argument, _ in args))
        return int(kind(self.table[place])(*(value for _, value in args)))

    def step(self, name: str, place: int, *args: "tuple[type, object]") -> bool:
        """Call and record a step; return True on success. The code is in the low 16 bits."""
        code = self.call(place, *args) & 0xFFFF
        text = c.c_char_p()
        if code:
            self.call(ERROR_MESSAGE, (c.c_uint64, code), (c.c_void_p, c.byref(text)))
        self.steps.append([name, code, (text.value or b"").decode("utf-8", "replace")])
        return code == 0

    def build(self) -> str:
        """Return the build id, like v2.51.0.260929181845."""
        text = c.c_char_p()
        self.call(BACKEND_BUILD_ID, (c.c_void_p, c.byref(text)))
        return (text.value or b"").decode("utf-8", "replace")


def work(backend: Backend, context: bytes, hold: float) -> None:
    """Create log, backend, device and context, until one of them fails."""
    pointer, log, handle, device = c.c_void_p, c.c_void_p(), c.c_void_p(), c.c_void_p()
    callback = log_to_stdout()
    backend.kept = callback  # type: ignore[attr-defined]
    backend.call(LOG_CREATE, (LOG, callback), (c.c_uint32, LEVEL), (pointer, c.byref(log)))
    if not backend.step(
        "backendCreate", BACKEND_CREATE, (pointer, log), (pointer, None), (pointer, c.byref(handle))
    ):
        return
    if not backend.step(
        "deviceCreate", DEVICE_CREATE, (pointer, log), (pointer, None), (pointer, c.byref(device))
    ):
        return
    if context:
        buffer, made = c.create_string_buffer(context, len(context)), c.c_void_p()
        fine = backend.step(
            "contextCreateFromBinary",
            CONTEXT_CREATE_FROM_BINARY,
            (pointer, handle),
            (pointer, device),
            (pointer, None),
            (pointer, c.cast(buffer, pointer)),
            (c.c_uint64, len(context)),
            (pointer, c.byref(made)),
            (pointer, None),
        )
        if fine:
            backend.call(CONTEXT_FREE, (pointer, made), (pointer, None))
    time.sleep(hold)
    backend.call(DEVICE_FREE, (pointer, device))


def read(name: str) -> bytes:
    """Read a context binary from a file or from standard input."""
    if name == "-":
        return sys.stdin.buffer.read()
    with open(name, "rb") as stream:  # noqa: PTH123
        return stream.read()


def syslog_to_stdout() -> None:
    """Redirect syslog, because libcdsprpc reports its errno only there."""
    os.dup2(1, 2)
    c.CDLL(None).openlog(None, LOG_PERROR, 0)


def main() -> None:
    """Load, work, report, and exit without destructors, which crash after a failure."""

    def expire() -> None:
        say("fleet-session " + json.dumps({"late": True}))
        os._exit(124)

    timer = threading.Timer(float(sys.argv[2]), expire)
    timer.daemon = True
    timer.start()
    report = {"build": "", "steps": []}  # type: dict[str, object]
    try:
        syslog_to_stdout()
        context = read(sys.argv[3]) if sys.argv[3:] and sys.argv[3] else b""
        backend = Backend(sys.argv[1])
        report = {"build": backend.build(), "steps": backend.steps}
        work(backend, context, float(sys.argv[4]) if sys.argv[4:] else 0)
    except (OSError, AttributeError) as error:
        report["load"] = str(error)
        say("<E> %s" % error)  # noqa: UP031 - Python 3.6
    say("fleet-session " + json.dumps(report))
    failed = [name for name, code, _ in report["steps"] if code]  # type: ignore[attr-defined]
    os._exit(1 if failed or "load" in report else 0)


main()
