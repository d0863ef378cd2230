"""How fast the explorer is, and how much it sends: a long text over HTTP from a server of its own, and the file alone.

    python benchmarks/explorer.py --out benchmarks/results/explorer-cpu.json

The model has weights of its own, 6 layers of 8 heads, and reads 2,048 and 8,192 tokens. `first_paint` is the page and
its programs, the reading and the small maps of all heads, in seconds and bytes on the wire; `read` is the model's own
part of it. `row` is the median over rows of all heads, `window` a whole map. The files are of 12 layers of 12 heads.
Where Chromium and Playwright are there, a link with the 2,048 tokens in it is opened as well: when the page is first
painted, and when all heads are drawn. The processor's seconds stand beside the clock's: others do not lengthen them.
"""

import argparse
import json
import random
import socket
import statistics
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import torch
import uvicorn

import regard
from regard.bench.timing import circumstances
from regard.files import write_json
from regard.serving.explorer import explorer
from regard.tasks.decoding_table import DecodingTable
from regard.tasks.task import TASKS
from regard.text.characters import CharacterTokenizer
from regard.views.look import seen_page

LETTERS = "abcdefghijklmnopqrstuvwxyz ."
ROWS = 40
LINKED = 5000
"""Characters of a text that a link carries."""
TRIES = 5
CHROMIUM = Path("/usr/bin/chromium")


def made(layers: int, heads: int, width: int, tokens: int) -> regard.Model:
    """A decoder that was never trained; its weights are larger than usual, so that its attention has a shape."""
    torch.manual_seed(0)
    tokenizer = CharacterTokenizer.train([LETTERS], 60)
    config = regard.TransformerConfig(
        architecture="decoder",
        vocabulary=tokenizer.size,
        width=width,
        heads=heads,
        layers=layers,
        max_positions=tokens + 8,
    )
    module = regard.Transformer(config).eval()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "query" in name or "key" in name:
                parameter.mul_(3)
    return regard.Model(module, tokenizer, TASKS["language_modelling"](), DecodingTable())


def text_of(tokens: int) -> str:
    """Letters at random, so many."""
    return "".join(random.Random(1).choices(LETTERS, k=tokens))


class Client:
    """One connection, as a browser keeps it, that counts what comes over it."""

    def __init__(self, port: int) -> None:
        self.connection, self.bytes = HTTPConnection("127.0.0.1", port), 0

    def get(self, path: str) -> bytes:
        return self._sent("GET", path, None)

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._sent("POST", f"/api/{path}", json.dumps(body)))
        return found

    def _sent(self, method: str, path: str, body: str | None) -> bytes:
        headers = {"X-Session": "bench"} | ({"Content-Type": "application/json"} if body else {})
        self.connection.request(method, path, body, headers)
        response = self.connection.getresponse()
        content = response.read()
        assert response.status == 200, content
        self.bytes += len(content) + sum(len(name) + len(value) + 4 for name, value in response.getheaders())
        return content


def programs() -> list[str]:
    """What the page loads."""
    folder = Path(regard.__file__).parent / "views" / "assets"
    own = [f"/assets/explorer/{one.name}" for one in (folder / "explorer").iterdir() if one.suffix in (".js", ".css")]
    return ["/", *own, "/assets/weights.js", "/assets/colours.js", "/api/models"]


def over_http(width: int, tokens: int) -> dict[str, Any]:
    """The page on a long text."""
    layers, heads = 6, 8
    place = socket.create_server(("127.0.0.1", 0))
    app = explorer({"long": made(layers, heads, width, tokens)}, longest=tokens)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=server.run, args=([place],), daemon=True)
    thread.start()
    port = place.getsockname()[1]
    client = Client(port)
    client.get("/")
    client.post("read", model="long", text="a short text", new_tokens=0)  # as the page does when it is opened
    client.bytes = 0
    begun, worked = time.perf_counter(), time.process_time()
    for path in programs():
        client.get(path)
    reading = client.post("read", model="long", text=text_of(tokens), new_tokens=0)
    read = time.perf_counter() - begun
    for layer in reading["layers"]:
        client.post("ask/thumbs", reading=reading["reading"], layer=layer["name"])
    painted, sent, processor = time.perf_counter() - begun, client.bytes, time.process_time() - worked
    rows, draws = [], random.Random(2)
    for _ in range(ROWS):
        asked = {"layer": f"decoder.{draws.randrange(layers)}.self", "head": draws.randrange(heads)}
        begun = time.perf_counter()
        client.post("ask/rows", reading=reading["reading"], rows=[draws.randrange(tokens)], **asked)
        rows.append(time.perf_counter() - begun)
    begun = time.perf_counter()
    size = {"rows": [0, tokens], "columns": [0, tokens]}
    window = client.post("ask/window", reading=reading["reading"], layer="decoder.3.self", head=2, **size)
    drawn = time.perf_counter() - begun
    opened = in_browser(port, text_of(tokens)) if tokens < LINKED else {}
    server.should_exit = True
    thread.join(10)
    return {
        **opened,
        "tokens": tokens,
        "width": width,
        "layers": layers,
        "heads": heads,
        "read_seconds": read,
        "first_paint_seconds": painted,
        "first_paint_processor_seconds": processor,
        "first_paint_bytes": sent,
        "row_seconds": statistics.median(rows),
        "slowest_row_seconds": max(rows),
        "window_seconds": drawn,
        "window_rows_read": window["rows_read"],
    }


def in_browser(port: int, text: str) -> dict[str, Any]:
    """Seconds from following a link until something is painted, and until every head is; the median of a few."""
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        return {}
    if not CHROMIUM.exists():
        return {}
    found: dict[str, list[float]] = {"browser_first_paint_seconds": [], "browser_all_heads_seconds": []}
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"])
        for _ in range(TRIES):
            tab = browser.new_page(viewport={"width": 1280, "height": 900})
            begun = time.perf_counter()
            tab.goto(f"http://127.0.0.1:{port}/#" + urlencode({"model": "long", "text": text, "tokens": 0}))
            tab.wait_for_selector("#explorer:not([aria-busy])[data-pending='0'] .thumb", state="attached")
            found["browser_all_heads_seconds"].append(time.perf_counter() - begun)
            first = "performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000"
            found["browser_first_paint_seconds"].append(tab.evaluate(first))
            tab.close()
        browser.close()
    return {name: statistics.median(times) for name, times in found.items()}


def alone(tokens: int) -> dict[str, Any]:
    """The file that stands alone."""
    model = made(12, 12, 144, tokens)
    page = seen_page(model.look(text_of(tokens - 1)), model.tokenizer)
    return {"tokens": tokens, "layers": 12, "heads": 12, "bytes": len(page.encode())}


def rows_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The figures of one length, as the results' other files have them."""
    what = f"the explorer, {found['layers']} layers × {found['heads']} heads of a width of {found['width']}"
    shown = {
        "until the first view stands": f"{found['first_paint_seconds']:.1f} s, {found['first_paint_bytes']:,} bytes",
        "of it the model's reading": f"{found['read_seconds']:.1f} s",
        "the processor's part until then": f"{found['first_paint_processor_seconds']:.1f} s",
        "a row of any head": f"{1000 * found['row_seconds']:.0f} ms",
        "a head's whole map": f"{found['window_seconds']:.1f} s",
    }
    if "browser_first_paint_seconds" in found:
        shown["Chromium, first contentful paint"] = f"{found['browser_first_paint_seconds']:.2f} s"
        shown["Chromium, all heads drawn"] = f"{found['browser_all_heads_seconds']:.1f} s"
    first, *others = [
        {"what": what, "tokens": found["tokens"], "contestant": name, "figure": figure}
        for name, figure in shown.items()
    ]
    return [{**first, "raw": found}, *others]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/explorer-cpu.json"))
    parser.add_argument("--width", type=int, default=256)
    asked = parser.parse_args()
    rows = [row for tokens in (2048, 8192) for row in rows_of(over_http(asked.width, tokens))]
    for tokens in (128, 512):
        file = alone(tokens)
        figure = f"{file['bytes'] / 1e6:.2f} MB"
        rows.append(
            {
                "what": "12 layers × 12 heads",
                "tokens": tokens,
                "contestant": "a file that stands alone",
                "figure": figure,
            }
        )
    for row in rows:
        print(row["what"], row["tokens"], row["contestant"], row["figure"])
    write_json(asked.out, {**circumstances(), "command": "python benchmarks/explorer.py", "rows": rows})


if __name__ == "__main__":
    main()
