#!/usr/bin/env python3
"""A stand-in for `geniex serve` of GenieX, whose program is for ARM alone and is written in Go.

Routes, fields and frames are as in cli/server of qualcomm/GenieX cb60a5d; it finds its model in the
data folder as sdk/model-manager does. It answers with the words of the prompt. The model echoes:
`fail`, `gone` and `hold` do so, and a prompt of more than 20 words does not fit. The file calls
beside the data folder has one line for each completion.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WINDOW = 20


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        return

    def do_GET(self) -> None:
        self.answer(200 if self.path == "/v1/" else 404, b"GenieX-CLI is running", "text/plain")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with (args.data_dir.parent / "calls").open("a") as calls:
            calls.write(json.dumps(body) + "\n")
        words = body["prompt"].split()
        if body["model"] != NAME or self.path != "/v1/completions":
            self.refuse(404, "model not found")
        elif len(words) > WINDOW:
            error = {"message": "too long", "type": "x", "code": "context_length_exceeded"}
            self.refuse(400, error)
        elif words == ["fail"]:
            self.refuse(500, "SDKError(-200103): generation failed")
        else:
            self.stream(words, body["max_tokens"])

    def stream(self, words: list[str], limit: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if words == ["gone"]:
            os._exit(1)
        made = words[:limit]
        for word in made:
            while words == ["hold"]:
                self.send({"object": "text_completion", "choices": [choice("x ")]})
                time.sleep(0.01)
            self.send({"object": "text_completion", "choices": [choice(word + " ")]})
        finish = "length" if len(made) < len(words) else "stop"
        self.send({"object": "text_completion", "choices": [choice("", finish)]})
        usage = {"prompt_tokens": len(words), "completion_tokens": len(made), "total_tokens": 0}
        self.send({"object": "text_completion", "choices": [], "usage": usage})
        self.send("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def send(self, data: object) -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        frame = ("data:" + text + "\n\n").encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(frame), frame))
        self.wfile.flush()

    def refuse(self, status: int, error: object) -> None:
        self.answer(status, json.dumps({"error": error}).encode(), "application/json")

    def answer(self, status: int, data: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def choice(text: str, finish: object = None) -> dict[str, object]:
    return {"index": 0, "text": text, "finish_reason": finish}


parser = argparse.ArgumentParser()
parser.add_argument("command", choices=["serve"])
for flag, kind in (("data-dir", Path), ("host", str), ("keepalive", int), ("compute", str),
                   ("nctx", int), ("ngl", int)):  # fmt: skip
    parser.add_argument("--" + flag, type=kind)
args = parser.parse_args()
models = args.data_dir / "models"
(path,) = models.glob("*/*/geniex.json")
manifest = json.loads(path.read_text())
NAME = manifest["Name"]
(file,) = manifest["ModelFile"].values()
plugin = Path(os.environ["GENIEX_PLUGIN_PATH"], manifest["PluginId"], "libgeniex_plugin.so")
if (models / NAME / file["Name"]).stat().st_size != file["Size"] or not plugin.is_file():
    sys.exit("no such model or plugin")
host, _, port = args.host.rpartition(":")
ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
