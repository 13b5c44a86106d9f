"""Draw docs/report.png anew from made-up runs: `python -m tests.profiles.report.screenshot`.

Needs chromium; the title of the picture says that no number in it is a board's.
"""

from __future__ import annotations

import shutil
import tempfile
import zlib
from pathlib import Path

from fleet.profiles.compare.groups import group
from fleet.profiles.report.page import page
from fleet.profiles.report.summary import gather
from tests.profiles.report.made import fleet
from tests.profiles.report.test_browser import ARGUMENTS

TARGET = Path(__file__).parents[3] / "docs" / "report.png"
TITLE = "Example with made-up runs"


def main() -> None:
    """From the top of the page to the end of the curves."""
    from playwright.sync_api import sync_playwright

    made = fleet(4, 12, 1, seed=11, sustained=2, emulated=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        report, user = Path(folder, "r.html"), str(Path(folder, "user"))
        report.write_text(page(gather([group("since:2026-09-01", made)]), TITLE), "utf-8")
        context = driver.chromium.launch_persistent_context(
            user, executable_path=shutil.which("chromium"), headless=True, args=ARGUMENTS,
            viewport={"width": 880, "height": 1600},
        )  # fmt: skip
        opened = context.new_page()
        opened.goto(report.as_uri())
        end = opened.evaluate(
            "document.querySelector('#heat ~ .cards .card').getBoundingClientRect().bottom + 6"
        )
        opened.screenshot(
            path=TARGET, full_page=True, clip={"x": 0, "y": 0, "width": 880, "height": end}
        )
        context.close()
    TARGET.write_bytes(smaller(TARGET.read_bytes()))


def smaller(png: bytes) -> bytes:
    """The same picture, packed as tightly as zlib can; a browser packs quickly."""
    head, rest, packed, at = png[:8], b"", b"", 8
    while at < len(png):
        size = int.from_bytes(png[at : at + 4])
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        packed += data if kind == b"IDAT" else b""
        rest += _chunk(kind, data) if kind == b"IHDR" else b""
        at += size + 12
    tight = zlib.compress(zlib.decompress(packed), 9)
    return head + rest + _chunk(b"IDAT", tight) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4) + kind + data + zlib.crc32(kind + data).to_bytes(4)


if __name__ == "__main__":
    main()
