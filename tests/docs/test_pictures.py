"""The pictures of the pages in a real Chromium: no text leaves its box, the page, or meets another.

A box of a text is the smallest one that its middle lies in.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.profiles.report.test_browser import ARGUMENTS

DOCS = Path(__file__).parents[2] / "docs"
PICTURES = sorted(DOCS.rglob("*.svg"))
CHROMIUM = shutil.which("chromium")
SLACK = 1.5  # of the drawing's own pixels
LOOK = """() => {
  const flat = (box) => [box.left, box.top, box.right, box.bottom]
  const every = (name) => [...document.querySelectorAll(name)]
  const seen = (item) => !item.closest('clipPath, defs')
  return {
    page: flat(document.documentElement.getBoundingClientRect()),
    boxes: every('rect').filter(seen).map(item => flat(item.getBoundingClientRect())),
    texts: every('text').filter(item => seen(item) && item.textContent.trim())
      .map(item => [item.textContent.trim(), ...flat(item.getBoundingClientRect())]),
  }
}"""
Box = tuple[float, float, float, float]


def area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def inside(text: Box, box: Box) -> bool:
    left, top, right, bottom = text
    return (
        left >= box[0] - SLACK
        and right <= box[2] + SLACK
        and top >= box[1] - SLACK * 2
        and bottom <= box[3] + SLACK * 2
    )


def over(one: Box, two: Box) -> bool:
    wide = min(one[2], two[2]) - max(one[0], two[0])
    high = min(one[3], two[3]) - max(one[1], two[1])
    return wide > SLACK and high > 0.4 * min(one[3] - one[1], two[3] - two[1])


def faults(page: Box, boxes: list[Box], texts: list[tuple[str, Box]]) -> list[str]:
    found = []
    for number, (said, text) in enumerate(texts):
        middle = (text[0] + text[2]) / 2, (text[1] + text[3]) / 2
        around = [b for b in boxes if b[0] <= middle[0] <= b[2] and b[1] <= middle[1] <= b[3]]
        around = [box for box in around if box[3] - box[1] > 0.8 * (text[3] - text[1])]
        box = min(around, key=area, default=page)
        if not inside(text, box):
            found.append(f"'{said}' {[*map(round, text)]} leaves its box {[*map(round, box)]}")
        found += [
            f"'{said}' lies on '{other}'"
            for other, place in texts[number + 1 :]
            if over(text, place)
        ]
    return found


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_every_text_stays_in_its_box(tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    assert len(PICTURES) > 9
    wrong = []
    with sync_playwright() as driver:
        context = driver.chromium.launch_persistent_context(
            str(tmp_path), executable_path=CHROMIUM, headless=True, args=ARGUMENTS,
            viewport={"width": 1600, "height": 1600},
        )  # fmt: skip
        page = context.new_page()
        for picture in PICTURES:
            page.goto(picture.as_uri())
            seen = page.evaluate(LOOK)
            texts = [(text[0], tuple(text[1:])) for text in seen["texts"]]
            assert texts, picture.name
            boxes = [tuple(box) for box in seen["boxes"]]
            wrong += [
                f"{picture.name}: {text}" for text in faults(tuple(seen["page"]), boxes, texts)
            ]
        context.close()
    assert not wrong, "\n".join(wrong)


def test_a_text_that_is_too_long_is_found() -> None:
    page, box = (0.0, 0.0, 100.0, 100.0), (10.0, 10.0, 50.0, 30.0)
    assert faults(page, [box], [("fits", (12.0, 12.0, 48.0, 28.0))]) == []
    assert faults(page, [box], [("too long", (12.0, 12.0, 70.0, 28.0))])
    assert faults(page, [], [("a", (1.0, 1.0, 20.0, 9.0)), ("b", (15.0, 1.0, 30.0, 9.0))])
