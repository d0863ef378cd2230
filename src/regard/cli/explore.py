"""`regard explore`: a web page, on this machine alone, that shows what models make of a text."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Device, Plugin, Precision
from regard.errors import InputError

if TYPE_CHECKING:
    from fastapi import FastAPI

PORT = 8421


def explore(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="Model folders; several side by side.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of 127.0.0.1; 0 takes a free one.")] = PORT,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens of the longest text that is read.")] = 16_384,
    memory: Annotated[float, typer.Option(min=0.01, help="GB that what was seen may take; the oldest goes.")] = 1.0,
    device: Device = "auto",
    precision: Precision = "auto",
    plugin: Plugin = None,
) -> None:
    """Serve the explorer: type a text, see the answer and where every head looked, down to the numbers.

    It answers to this machine alone, fetches nothing, and stops with Ctrl-C.

    Example: `regard explore runs/demo`
    """
    explorer = _explorer()
    from regard import api
    from regard.api.exploring.history import KeptSteps

    folders = _named(models)
    loaded = {name: api.load(folder, device, precision) for name, folder in folders.items()}
    history = {name: KeptSteps.of(folder, device, precision) for name, folder in folders.items()}
    _serve(explorer(loaded, max_tokens, int(memory * 2**30), history), port, browser)


def _named(folders: list[Path]) -> dict[str, Path]:
    """A short name for each folder."""
    found: dict[str, Path] = {}
    for folder in folders:
        if any(folder.resolve() == other.resolve() for other in found.values()):
            raise InputError(f"{folder} is named twice", "name each model once")
        name = folder.resolve().name or str(folder)
        found[str(folder) if name in found else name] = folder
    return found


def _explorer() -> "Callable[..., FastAPI]":
    """What makes the app, where what it needs is installed."""
    try:
        from regard.serving.explorer import explorer
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("regard"):
            raise
        raise InputError(f"{error.name} is not installed", "install it with: pip install 'regard[serve]'") from error
    return explorer


def _serve(app: "FastAPI", port: int, browser: bool) -> None:
    import socket
    import threading
    import webbrowser

    import uvicorn

    with socket.socket() as place:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            place.bind(("127.0.0.1", port))
        except OSError as error:
            raise InputError(
                f"port {port} is taken: {error.strerror}", "choose another, or --port 0 for any"
            ) from error
        place.listen()  # who follows the address at once waits, and is not refused
        address = f"http://127.0.0.1:{place.getsockname()[1]}/"
        typer.echo(f"the explorer is at {address} (Ctrl-C stops it)")
        if browser:
            threading.Timer(0.5, webbrowser.open, [address]).start()
        with suppress(KeyboardInterrupt):  # how it ends
            uvicorn.Server(uvicorn.Config(app, log_level="warning", server_header=False)).run([place])
