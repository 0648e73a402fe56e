"""The page in a real browser: no errors, it sorts, it switches themes, and no request leaves it.

The pictures of the documentation are made here, of the run that ``lossmith demo`` left, which is kept beside this file.
After a change of the page, or with another run, they are made anew by::

    LOSSMITH_PICTURES=docs/images python -m pytest tests/lab/test_report_in_browser.py
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = os.environ.get("LOSSMITH_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
# nothing of the browser's own reaches for the network
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
ROOT = Path(__file__).parents[2]
DEMO = Path(__file__).parent / "demo_run"
VIEWS = {"light": (960, 1180), "dark": (960, 1180), "narrow": (390, 1180)}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no chromium: install it, or name it in LOSSMITH_CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from lossmith.lab.report import write_report
    from tests.lab.test_report import EVIL, a_run

    return write_report([a_run(), a_run(EVIL)], tmp_path_factory.mktemp("report") / "report.html")


class Visit:
    """A page, with all that the browser had to say and to fetch."""

    def __init__(self, browser: Browser, report: Path, view: str) -> None:
        width, height = VIEWS[view]
        scheme = "dark" if view == "dark" else "light"
        self.page: Page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": height})
        self.said: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(report.resolve().as_uri())

    def background(self) -> str:
        return str(self.page.evaluate("getComputedStyle(document.body).backgroundColor"))

    def first_column(self) -> list[str]:
        return self.page.locator("table.sortable").first.locator("tbody td:first-child").all_inner_texts()


@pytest.mark.parametrize("view", VIEWS)
def test_opens_without_errors_and_loads_nothing(browser: Browser, report: Path, view: str, tmp_path: Path) -> None:
    visit = Visit(browser, report, view)
    assert visit.requests == [report.resolve().as_uri()]
    assert visit.page.locator("svg").count() == 11
    # nothing but tables and pictures may scroll sideways
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    size = visit.page.screenshot(path=tmp_path / "page.png")
    assert len(size) > 20_000
    assert visit.said == []
    visit.page.close()


def test_sorts(browser: Browser, report: Path) -> None:
    visit = Visit(browser, report, "light")
    assert visit.first_column() == ["smooth_ap", "traced", "ce", "ce_again", "focal"]
    heads = visit.page.locator("table.sortable").first.locator("thead button")
    heads.nth(0).click()  # names, from the end of the alphabet
    assert visit.first_column() == ["traced", "smooth_ap", "focal", "ce_again", "ce"]
    heads.nth(0).click()
    assert visit.first_column() == ["ce", "ce_again", "focal", "smooth_ap", "traced"]
    heads.nth(2).click()  # differences; cross-entropy has none and stays at the end
    assert visit.first_column() == ["smooth_ap", "traced", "ce_again", "focal", "ce"]
    heads.nth(2).click()
    assert visit.first_column() == ["focal", "ce_again", "traced", "smooth_ap", "ce"]
    assert visit.page.locator("th[aria-sort]").first.get_attribute("aria-sort") == "ascending"
    assert visit.said == []
    visit.page.close()


def test_switches_theme(browser: Browser, report: Path) -> None:
    light, dark = Visit(browser, report, "light"), Visit(browser, report, "dark")
    backgrounds = light.background(), dark.background()
    assert backgrounds[0] != backgrounds[1]
    for visit, other in ((light, backgrounds[1]), (dark, backgrounds[0])):
        visit.page.locator("#theme").click()
        assert visit.background() == other
        visit.page.emulate_media(media="print")
        assert visit.background() == "rgb(255, 255, 255)"
        assert visit.said == []
        visit.page.close()


def test_copies_or_marks_the_snippet(browser: Browser, report: Path) -> None:
    visit = Visit(browser, report, "light")
    button = visit.page.locator(".copy").first
    button.click()
    # the browser says later whether it may write to the clipboard
    visit.page.wait_for_function("['copied', 'selected'].includes(document.querySelector('.copy').textContent)")
    assert visit.said == []
    visit.page.close()


def test_pictures_of_the_documentation(browser: Browser, tmp_path: Path) -> None:
    """Light, dark and narrow, small files of few colours, each with a mark of what it was made from."""
    from PIL import Image, PngImagePlugin

    from lossmith.lab.report import read_run, write_report

    report = write_report([read_run(DEMO)], tmp_path / "report.html")
    made_from = hashlib.sha256()
    page = ROOT / "src" / "lossmith" / "lab" / "report"
    for path in (*sorted(DEMO.glob("*.json")), page / "page.css", page / "page.html.jinja"):
        made_from.update(path.read_bytes())
    mark = PngImagePlugin.PngInfo()
    mark.add_text("made from", made_from.hexdigest())
    folder = Path(os.environ.get("LOSSMITH_PICTURES", tmp_path))
    for view, (width, height) in VIEWS.items():
        path = folder / f"report-{view}.png"
        visit = Visit(browser, report, view)
        assert visit.page.locator("h2").inner_text() == read_run(DEMO).comparison.verdict
        visit.page.screenshot(path=path)
        visit.page.close()
        with Image.open(path) as picture:
            assert picture.size == (width, height)
            picture.convert("RGB").quantize(128).save(path, optimize=True, pnginfo=mark)
        assert 10_000 < path.stat().st_size < 100_000
        with Image.open(ROOT / "docs" / "images" / path.name) as kept:
            assert kept.size == (width, height)
            assert kept.info["made from"] == made_from.hexdigest(), "this picture is old: see above how to make it"
