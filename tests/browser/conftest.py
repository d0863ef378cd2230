"""A real browser without a window: Chromium driven by Playwright; where either is missing, tests are skipped."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.views.html import AttentionPage, save_html

CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture(scope="session")
def browser() -> Iterator:
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not installed (apt-get install chromium)")
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=str(CHROMIUM), args=flags)
        yield running
        running.close()


class Viewer:
    """A page in a tab, with what went wrong in it and what it asked the network for."""

    def __init__(self, tab, path: Path) -> None:
        self.tab = tab
        self.problems: list[str] = []
        self.requests: list[str] = []
        tab.on("console", lambda message: self.problems.append(message.text))
        tab.on("pageerror", lambda error: self.problems.append(str(error)))
        tab.on("dialog", lambda dialog: self.problems.append(dialog.message))
        tab.on("request", lambda request: self.requests.append(request.url))
        tab.goto(path.as_uri())

    def choose(self, *, view=None, layer=None, head=None, words=None) -> "Viewer":
        for name, value in (("view", view), ("head", head)):
            if value is not None:
                self.tab.check(f"input[name={name}][value='{value}']", force=True)
        if layer is not None:
            self.tab.select_option("select[name=layer]", label=layer)
        if words is not None:
            self.tab.set_checked("input[name=words]", words)
        return self

    @property
    def readout(self) -> str:
        return self.tab.inner_text(".readout")

    def map_picture(self) -> str:
        return self.tab.evaluate("document.querySelector('.map canvas').toDataURL()")

    def rows(self, side: str):
        return self.tab.locator(f".listing.{side} .row")

    def ink_beside(self, side: str) -> list[bool]:
        """For every token of a column, whether a line begins or ends there."""
        return self.tab.evaluate(
            """(side) => {
              const canvas = document.querySelector(".lines canvas"), pen = canvas.getContext("2d");
              const top = canvas.getBoundingClientRect().top, ratio = canvas.width / canvas.clientWidth;
              const x = side === "from" ? 0 : canvas.width - 3;
              return [...document.querySelectorAll(`.listing.${side} .row`)].map((row) => {
                const box = row.getBoundingClientRect();
                const y = Math.round((box.top + box.height / 2 - top) * ratio);
                return pen.getImageData(x, y - 5, 3, 10).data.some((part, at) => at % 4 === 3 && part > 3);
              });
            }""",
            side,
        )


@pytest.fixture
def show(browser, tmp_path) -> Iterator:
    tabs = []

    def opened(page: AttentionPage, scheme: str = "light") -> Viewer:
        path = tmp_path / f"page{len(tabs)}.html"
        save_html(page, path)
        tabs.append(browser.new_page(viewport={"width": 1280, "height": 860}, color_scheme=scheme))
        return Viewer(tabs[-1], path)

    yield opened
    for tab in tabs:
        tab.close()
