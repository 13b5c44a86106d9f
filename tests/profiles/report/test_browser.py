"""The page in a real Chromium: it opens, loads nothing, sorts, fits a phone, has two themes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.profiles.compare.groups import group
from fleet.profiles.report.page import page
from fleet.profiles.report.summary import gather
from tests.profiles.compare.made import newer
from tests.profiles.report.made import fleet

CHROMIUM = shutil.which("chromium")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
HOSTILE = "</script><img src=x onerror=alert(1)>"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


class Opened:
    """A page that was opened, with what the browser said and asked for meanwhile."""

    def __init__(self, context: Any, path: Path, width: int = 1240, scheme: str = "light") -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        self.failed: list[tuple[str, str]] = []
        self.page = context.new_page()
        self.page.on("console", lambda one: self.said.append(one.text))
        self.page.on("pageerror", lambda one: self.said.append(str(one)))
        self.page.on("dialog", self._dismiss)
        self.page.on("request", lambda one: self.asked.append(one.url))
        self.page.on("requestfailed", lambda one: self.failed.append((one.url, one.failure)))
        self.page.set_viewport_size({"width": width, "height": 844})
        self.page.emulate_media(color_scheme=scheme)
        self.page.goto(path.as_uri())

    def _dismiss(self, dialog: Any) -> None:
        self.said.append("dialog")
        dialog.dismiss()

    def ask(self, script: str) -> Any:
        return self.page.evaluate(script)

    def column(self) -> list[str]:
        """The board column of the first table."""
        return list(self.ask("[...document.querySelectorAll('table')[0].tBodies[0].rows]"
                             ".map(r => r.querySelector('th').textContent)"))  # fmt: skip


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        found = driver.chromium.launch_persistent_context(
            str(tmp_path_factory.mktemp("user")), executable_path=CHROMIUM, headless=True,
            args=ARGUMENTS,
        )  # fmt: skip
        yield found
        found.close()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two groups, one of them emulated, with a board that warms up, and with hostile names."""
    from msgspec.structs import replace

    path = tmp_path_factory.mktemp("small") / "r.html"
    after = [
        replace(one, host=HOSTILE, name=HOSTILE, problems=(HOSTILE,) if one.problems else (),
                marks=(HOSTILE,)) if one.host in {"evk-02", "evk-05"} else one
        for one in fleet(5, 8, 2, seed=3, sustained=1, emulated=True)
    ]  # fmt: skip
    before = fleet(5, 8, 2, seed=4)
    path.write_text(page(gather([group("before", before), group(HOSTILE, after)])), "utf-8")
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "r.html"
    path.write_text(page(gather([group("all", fleet(50, 20))])), "utf-8")
    return path


def test_opens_without_an_error_and_asks_for_nothing(context: Any, small: Path) -> None:
    opened = Opened(context, small)
    opened.ask("new Promise(r => setTimeout(r, 100))")
    assert opened.said == []
    assert opened.asked == [small.as_uri()]
    assert opened.ask("document.querySelectorAll('img, link, iframe, object').length") == 0
    assert HOSTILE in opened.ask("document.body.textContent")


def test_the_policy_forbids_scripts_and_loads_that_are_not_ours(context: Any, small: Path) -> None:
    opened = Opened(context, small)
    opened.ask(
        "(() => { const s = document.createElement('script'); s.textContent = 'window.bad = 1';"
        "document.body.append(s); const i = new Image(); i.src = 'http://127.0.0.1:9/x.png';"
        "document.body.append(i); })()"
    )
    assert opened.ask("window.bad === undefined")
    assert any("Content Security Policy" in one for one in opened.said)
    assert opened.failed == [("http://127.0.0.1:9/x.png", "csp")]


def test_pictures_have_shapes_names_and_a_place(context: Any, small: Path) -> None:
    opened = Opened(context, small)
    cards = opened.ask(
        "[...document.querySelectorAll('.card')].map(c => { const s = c.querySelector('svg');"
        "const b = s.getBoundingClientRect(); return {w: b.width, h: b.height,"
        "n: s.querySelectorAll('path, line, rect').length, t: s.getAttribute('aria-label'),"
        "d: s.querySelector('desc').textContent, h3: c.querySelector('h3').textContent}; })"
    )
    titles = [one["h3"] for one in cards]
    assert {"gen tok/s, more is better", "Largest operations, us", "gen tok/s"} <= set(titles)
    assert any(one.startswith("evk-01") for one in titles)
    for one in cards:
        assert one["w"] > 200
        assert one["h"] > 50
        assert one["n"] > 10
        assert one["t"]
        assert one["d"]
    drawn = opened.ask("document.querySelectorAll('.mark-symbol path').length")
    assert drawn > 500
    hollow = opened.ask("document.querySelectorAll('.mark-symbol path:not([fill])').length")
    assert hollow > 100


def test_the_table_sorts_by_click_and_by_key(context: Any, large: Path) -> None:
    opened = Opened(context, large)
    head = opened.page.locator("thead button", has_text="gen tok/s").first
    numbers = (
        "[...document.querySelectorAll('table')[0].tBodies[0].rows].map(r =>"
        "Number(r.cells[[...document.querySelectorAll('table')[0].tHead.rows[0].cells]"
        ".findIndex(h => h.textContent === 'gen tok/s')].dataset.v))"
    )
    before = opened.ask(numbers)
    head.click()
    assert opened.ask(numbers) == sorted(before) != before
    sorts = "[...document.querySelectorAll('table')[0].tHead.rows[0].cells].map(t => t.ariaSort)"
    assert opened.ask(sorts).count("ascending") == 1
    head.focus()
    opened.page.keyboard.press("Enter")
    assert opened.ask(numbers) == sorted(before, reverse=True)
    assert opened.ask(sorts).count("descending") == 1
    opened.page.keyboard.press("Space")
    assert opened.ask(numbers) == sorted(before)
    names = opened.page.locator("thead button", has_text="board").first
    names.click()
    assert opened.column()[:2] == ["evk-01", "evk-02"]


_LOOKS = (
    "['body', '.card', '.card svg text', '.mark-symbol path', 'h1'].map(s => {"
    "const c = getComputedStyle(document.querySelector(s));"
    "return [c.backgroundColor, c.color, c.fill].join(); })"
)


def test_dark_differs_from_light_by_system_and_by_switch(context: Any, small: Path) -> None:
    light, dark = Opened(context, small), Opened(context, small, scheme="dark")
    one, other = light.ask(_LOOKS), dark.ask(_LOOKS)
    assert all(a != b for a, b in zip(one, other, strict=True))
    light.page.get_by_role("button", name="Show it dark").click()
    assert light.ask(_LOOKS) == other
    dark.page.get_by_role("button", name="Show it light").click()
    assert dark.ask(_LOOKS) == one


@pytest.mark.parametrize("width", [320, 390])
def test_fits_a_phone(context: Any, small: Path, width: int) -> None:
    opened = Opened(context, small, width=width)
    opened.ask("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert opened.ask("document.documentElement.scrollWidth") <= width
    wide = (
        "Math.max(...[...document.querySelectorAll('main > *, .card, .card svg')]"
        ".map(e => e.getBoundingClientRect().right))"
    )
    assert opened.ask(wide) <= width


def test_tables_of_three_boards_fit_the_usual_width(context: Any, tmp_path: Path) -> None:
    """No sideways scroll, and no cell of a figure in more than two lines."""
    before = fleet(3, 5, seed=4, emulated=True)
    path = tmp_path / "r.html"
    after = newer(fleet(3, 5, seed=5, emulated=True))
    path.write_text(page(gather([group("prev", before), group("last", after)])), "utf-8")
    opened = Opened(context, path, width=1280)
    tables = ("verdicts", "boards")
    for name in tables:
        box = f"document.querySelector('#{name} ~ .wide')"
        assert opened.ask(f"{box}.scrollWidth <= {box}.clientWidth"), name
        rows = f"[...{box}.querySelectorAll('tbody tr')]"
        heights = f"{rows}.map(r => r.getBoundingClientRect().height)"
        assert max(opened.ask(heights)) < 62, name


def test_fifty_boards_with_twenty_runs(context: Any, large: Path) -> None:
    assert large.stat().st_size < 2_000_000
    opened = Opened(context, large)
    assert opened.said == []
    assert opened.asked == [large.as_uri()]
    assert len(opened.column()) == 50
    counted = sum(one.counts for one in fleet(50, 20))
    first = "document.querySelectorAll('#distributions ~ .cards')[0].querySelector('.card')"
    assert opened.ask(f"{first}.querySelectorAll('.mark-symbol path').length") == counted
