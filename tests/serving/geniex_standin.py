#!/usr/bin/env python3
"""A stand-in for `geniex serve` of GenieX, whose program is for ARM alone and is written in Go.

Options, answers and errors are as in cli/ of qualcomm/GenieX cb60a5d; it finds its model in the
data folder as sdk/model-manager does, and answers one request at a time. An error of a streamed
answer is an event of the stream, whose status is 200. The answer has the words of the prompt:
`fail`, `gone` and `hold` do so, and a prompt of more than 20 words does not fit. The file calls
beside the data folder has one line for each completion.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WINDOW = 20
ONE_AT_A_TIME = threading.Lock()  # cli/server/middleware/gil.go
# sdk/include/geniex.h and sdk/src/error.cpp
NO_MODEL = {"error": "SDKError(Model loading failed)", "code": -100201}
NO_PLUGIN = {"error": "SDKError(Invalid plugin)", "code": -100302}
FAILED = {"error": "SDKError(Text generation failed)", "code": -200101}
TOO_LONG = {"error": "SDKError(Input prompt too long)", "code": -200103}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        return

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with ONE_AT_A_TIME:
            with (args.data_dir.parent / "calls").open("a") as calls:
                calls.write(json.dumps(body) + "\n")
            self.complete(body)

    def complete(self, body: dict[str, object]) -> None:
        path = args.data_dir / "models" / str(body["model"]) / "geniex.json"
        prompt = body.get("prompt")
        if self.path != "/v1/completions":
            self.answer(404, "404 page not found")
        elif not isinstance(prompt, str) or not prompt:
            self.refuse(400, {"error": "prompt must be non-empty"})
        elif not path.is_file():
            self.refuse(400, {"error": "model not found"})
        else:
            manifest = json.loads(path.read_text())
            (file,) = manifest["ModelFile"].values()
            plugin = Path(os.environ["GENIEX_PLUGIN_PATH"], manifest["PluginId"])
            if not (plugin / "libgeniex_plugin.so").is_file():
                self.refuse(500, NO_PLUGIN)
            elif not (path.parent / file["Name"]).is_file():
                self.refuse(500, NO_MODEL)
            else:
                self.stream(prompt.split(), int(str(body["max_tokens"])))

    def stream(self, words: list[str], limit: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if words == ["gone"]:
            os._exit(1)
        error = TOO_LONG if len(words) > WINDOW else FAILED if words == ["fail"] else None
        if error is None:
            self.words(words, limit)
        else:
            self.send(error)
        self.wfile.write(b"0\r\n\r\n")

    def words(self, words: list[str], limit: int) -> None:
        made = words[:limit]
        for word in made:
            while words == ["hold"]:
                self.send({"object": "text_completion", "choices": [choice("x ")]})
                time.sleep(0.01)
            self.send({"object": "text_completion", "choices": [choice(word + " ")]})
        finish = "length" if len(made) < len(words) else "stop"
        self.send({"object": "text_completion", "choices": [choice("", finish)]})
        usage = {"prompt_tokens": len(words), "completion_tokens": len(made),
                 "total_tokens": len(words) + len(made)}  # fmt: skip
        self.send({"object": "text_completion", "choices": [], "usage": usage})
        self.send("[DONE]")

    def send(self, data: object) -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        frame = ("data:" + text + "\n\n").encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(frame), frame))
        self.wfile.flush()

    def refuse(self, status: int, error: object) -> None:
        self.answer(status, json.dumps(error), "application/json")

    def answer(self, status: int, text: str, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())


def choice(text: str, finish: object = None) -> dict[str, object]:
    return {"index": 0, "text": text, "finish_reason": finish}


parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("command", choices=["serve"])
for flag, kind in (("data-dir", Path), ("host", str), ("keepalive", int), ("compute", str),
                   ("nctx", int), ("ngl", int)):  # fmt: skip
    parser.add_argument("--" + flag, type=kind)
parser.add_argument("--skip-update", action="store_true")
args = parser.parse_args()
host, _, port = args.host.rpartition(":")
ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
