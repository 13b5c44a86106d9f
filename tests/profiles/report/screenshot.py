"""Draw docs/report.png anew from runs that are made up: `python -m tests.profiles.report.screenshot`.

Needs chromium; the title of the picture says that no number in it is a board's.
"""

from __future__ import annotations

import shutil
import tempfile
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

    made = fleet(4, 12, 3, seed=11, sustained=2)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        report, user = Path(folder, "r.html"), str(Path(folder, "user"))
        report.write_text(page(gather([group("since:2026-09-01", made)]), TITLE), "utf-8")
        context = driver.chromium.launch_persistent_context(
            user, executable_path=shutil.which("chromium"), headless=True, args=ARGUMENTS,
            viewport={"width": 1200, "height": 1900},
        )  # fmt: skip
        opened = context.new_page()
        opened.goto(report.as_uri())
        end = opened.evaluate(
            "document.querySelector('#heat ~ .cards').getBoundingClientRect().bottom + 24"
        )
        opened.screenshot(
            path=TARGET, full_page=True, clip={"x": 0, "y": 0, "width": 1200, "height": end}
        )
        context.close()


if __name__ == "__main__":
    main()
