"""Runs Genie dialog queries through libGenie with ctypes, for runtimes without genie-t2t-run.

It runs one query, or with --suite all questions of a suite in one dialog that is reset between
them. Standard output has only the generated text; output of the libraries goes to standard error.
The outcome file has the text, the return codes and Genie's own profile as text. Exit status: 0
done, 10 bad configuration, 11 no dialog (the NPU session failed), 12 query failed, 13 context size
exceeded (Genie warns with 4 and writes no query event), 124 timeout.
"""

import argparse
import ctypes as c
import json
import os
import sys
import threading
import time

CONTEXT_EXCEEDED = 4
LOG_PERROR = 0x20
LEVELS = {1: "ERROR", 2: "WARN", 3: "INFO", 4: "VERBOSE"}
LOG = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p, c.c_int, c.c_uint64, c.c_void_p)
TOKEN = c.CFUNCTYPE(None, c.c_char_p, c.c_int, c.c_void_p)
IDS = c.CFUNCTYPE(None, c.POINTER(c.c_uint32), c.c_uint32, c.c_int, c.c_void_p)
GREEDY = {"version": 1, "seed": 42, "temp": 1.0, "top-k": 1, "top-p": 1.0}
ALLOC = c.CFUNCTYPE(None, c.c_size_t, c.POINTER(c.c_void_p))


class Genie:
    """libGenie with a logger, a profiler, and all handles that must be freed."""

    def __init__(self, library: str, level: int) -> None:
        self.lib = c.CDLL(library)
        self.libc = c.CDLL(None)
        self.libc.openlog(None, LOG_PERROR, 0)  # libcdsprpc reports its errno to syslog only
        self.libc.vsnprintf.argtypes = [c.c_void_p, c.c_size_t, c.c_char_p, c.c_void_p]
        self.keep = LOG(self._log)
        self.dialog, self.config = c.c_void_p(), c.c_void_p()
        self.profile, self.log = c.c_void_p(), c.c_void_p()
        self.lib.GenieLog_create(None, self.keep, c.c_int(level), c.byref(self.log))
        self.lib.GenieProfile_create(None, c.byref(self.profile))

    def _log(self, _: int, template: bytes, level: int, __: int, values: int) -> None:
        line = c.create_string_buffer(8192)
        self.libc.vsnprintf(line, 8192, template, values)
        text = line.value.decode("utf-8", "replace").strip()
        sys.stderr.write("[%s] %s\n" % (LEVELS.get(level, "LOG"), text))  # noqa: UP031
        sys.stderr.flush()

    def version(self) -> str:
        """Return libGenie's API version, `1.21.0`."""
        parts = ("Major", "Minor", "Patch")
        return ".".join(str(getattr(self.lib, "Genie_getApi%sVersion" % p)()) for p in parts)  # noqa: UP031

    def open(self, text: bytes) -> "tuple[int, int]":
        """Open the dialog and return (config status, dialog status); 0 is success."""
        status = self.lib.GenieDialogConfig_createFromJson(text, c.byref(self.config))
        if status:
            return status, -1
        self.lib.GenieDialogConfig_bindLogger(self.config, self.log)
        self.lib.GenieDialogConfig_bindProfiler(self.config, self.profile)
        return 0, self.lib.GenieDialog_create(self.config, c.byref(self.dialog))

    def query(self, prompt: bytes, limit: int, out: "int | None") -> "tuple[int, bytes]":
        """Run a query and return (status, text).

        Tokens are written to the descriptor `out` at once.
        """
        pieces = []

        def take(piece: "bytes | None", _: int, __: "int | None") -> None:
            if piece:
                pieces.append(piece)
                if out is not None:
                    os.write(out, piece)

        self.lib.GenieDialog_setMaxNumTokens(self.dialog, c.c_uint32(limit))
        callback = TOKEN(take)
        status = self.lib.GenieDialog_query(self.dialog, prompt, c.c_int(0), callback, None)
        return status, b"".join(pieces)

    def query_tokens(self, tokens: "list[int]", limit: int) -> "tuple[int, bytes]":
        """Run a query of tokens and return (status, generated token ids as text with blanks)."""
        pieces = []  # type: list[str]

        def take(ids: "c._Pointer[c.c_uint32]", count: int, _: int, __: "int | None") -> None:
            pieces.extend(str(ids[number]) for number in range(count))

        self.lib.GenieDialog_setMaxNumTokens(self.dialog, c.c_uint32(limit))
        callback, array = IDS(take), (c.c_uint32 * len(tokens))(*tokens)
        count, whole = c.c_uint32(len(tokens)), c.c_int(0)
        status = self.lib.GenieDialog_tokenQuery(self.dialog, array, count, whole, callback, None)
        return status, " ".join(pieces).encode()

    def profile_text(self) -> str:
        """Return Genie's profile JSON as Genie wrote it, "" if there is none."""
        buffers = []

        def allocate(count: int, where: "c._Pointer[c.c_void_p]") -> None:
            buffer = c.create_string_buffer(count + 1)
            buffers.append(buffer)
            where[0] = c.addressof(buffer)

        data, callback = c.c_void_p(), ALLOC(allocate)
        status = self.lib.GenieProfile_getJsonData(self.profile, callback, c.byref(data))
        if status or not data.value:
            return ""
        return c.string_at(data.value).decode("utf-8", "replace")

    def free(self) -> None:
        """Free the handles in Genie's order. Without this the process crashes at its end."""
        if self.dialog.value:
            self.lib.GenieDialog_free(self.dialog)
        if self.config.value:
            self.lib.GenieDialogConfig_free(self.config)
        self.lib.GenieProfile_free(self.profile)
        self.lib.GenieLog_free(self.log)


class Watchdog:
    """A timer that ends the program if a query takes longer than `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timer = None  # type: threading.Timer | None

    def restart(self) -> None:
        """Restart the full time for the next query."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(self._seconds, self._expire)
        self._timer.daemon = True
        self._timer.start()

    def _expire(self) -> None:
        sys.stderr.write("fleet_genie: the query did not end within %g s\n" % self._seconds)  # noqa: UP031
        sys.stderr.flush()
        os._exit(124)


def options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="run one Genie query")
    parser.add_argument("--library", default="libGenie.so")
    parser.add_argument("--config", required=True)
    parser.add_argument("--prompt-file")
    parser.add_argument("--outcome", required=True)
    parser.add_argument("--suite", help="JSON: a list of {name, prompt or tokens, max_tokens}")
    parser.add_argument("--greedy", action="store_true", help="take the most likely token always")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--timeout", type=float, default=300.0)
    parser.add_argument("--log-level", type=int, default=2)
    parser.add_argument("--check", action="store_true", help="open a session and close it")
    return parser.parse_args()


def answer_suite(genie: Genie, args: argparse.Namespace, clock: "Watchdog") -> int:
    """Ask every question, and write a line for each answer to the outcome file at once."""
    with open(args.suite, encoding="utf-8") as stream:  # noqa: PTH123
        questions = json.load(stream)
    with open(args.outcome, "w") as stream:  # noqa: PTH123
        for question in questions:
            clock.restart()
            genie.lib.GenieDialog_reset(genie.dialog)
            began, limit = time.monotonic(), question["max_tokens"]
            if question["tokens"]:
                code, text = genie.query_tokens(question["tokens"], limit)
            else:
                code, text = genie.query(question["prompt"].encode(), limit, None)
            seconds = time.monotonic() - began
            row = {"name": question["name"], "query": code, "seconds": seconds}
            row["text"] = text.decode("utf-8", "replace")
            stream.write(json.dumps(row) + "\n")
            stream.flush()
        stream.write(json.dumps({"profile": genie.profile_text()}) + "\n")
    return 0


def work(args: argparse.Namespace, out: int, clock: "Watchdog") -> int:
    """Open the dialog, ask, write the outcome, free; return the exit status."""
    with open(args.config, "rb") as stream:  # noqa: PTH123
        config = stream.read()
    if args.greedy:
        body = json.loads(config)
        body["dialog"]["sampler"] = GREEDY
        config = json.dumps(body).encode()
    prompt = b""
    if args.prompt_file:
        with open(args.prompt_file, "rb") as stream:  # noqa: PTH123
            prompt = stream.read()
    try:
        genie = Genie(args.library, args.log_level)
    except OSError as error:
        sys.stderr.write("cannot load %s: %s\n" % (args.library, error))  # noqa: UP031
        return 11
    refused, failed = genie.open(config)
    if args.suite and not refused and not failed:
        status = answer_suite(genie, args, clock)
        genie.free()
        return status
    outcome = {"runner": "fleet_genie", "genie_api": genie.version(), "text": ""}  # type: dict[str, object]
    outcome.update(config=refused, create=failed, query=None)
    status = 10 if refused else 11 if failed else 0
    if not status and not args.check:
        code, text = genie.query(prompt, args.max_tokens, out)
        outcome["query"], outcome["text"] = code, text.decode("utf-8", "replace")
        status = 0 if code == 0 else 13 if code == CONTEXT_EXCEEDED else 12
    outcome["profile"] = genie.profile_text()
    with open(args.outcome, "w") as stream:  # noqa: PTH123
        json.dump(outcome, stream)
    genie.free()
    return status


def main() -> None:
    """Reserve standard output for the text, start the watchdog, do the work."""
    args = options()
    out = os.dup(1)
    os.dup2(2, 1)

    clock = Watchdog(args.timeout)
    clock.restart()
    status = work(args, out, clock)
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
