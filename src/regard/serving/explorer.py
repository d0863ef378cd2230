"""The explorer over HTTP, for this machine alone: a page, its programs, and the questions it asks.

    app = explorer({"demo": regard.load("runs/demo")})

A later server can mount the same app: every address in it is relative. Models are in memory before the first request;
no path from a request is ever opened, and the page's files are read once, when the app is made.
"""

import re
import threading
from collections.abc import Mapping
from contextlib import nullcontext
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException

from regard.api import Model
from regard.api.exploring.examples import model_record
from regard.api.exploring.history import KeptSteps
from regard.api.exploring.questions import QUESTIONS
from regard.api.exploring.reading import LONGEST, MEMORY, GoneError, TextStore, Wanted, read
from regard.errors import InputError, RegardError, choose
from regard.serving.guard import guard
from regard.views.exploring.questions import OF_RECORDINGS

KINDS = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}
NAME = re.compile(r"[\w-]{1,64}")


class ReadRequest(BaseModel):
    """A text to be read."""

    model_config = ConfigDict(extra="forbid")

    model: str
    text: str
    target: str | None = None
    new_tokens: int | None = Field(None, ge=0, le=1024)
    step: int | None = Field(None, ge=0)
    """The model as it was after this step of its training."""


def explorer(
    models: Mapping[str, Model],
    longest: int = LONGEST,
    memory: int = MEMORY,
    history: Mapping[str, KeptSteps] = MappingProxyType({}),
) -> FastAPI:
    """The app, for these models, and for what they were at the steps that their training kept."""
    app = FastAPI(title="Regard's explorer", docs_url=None, redoc_url=None, openapi_url=None)
    app.middleware("http")(guard)
    _say_what_is_wrong(app)
    pages, store, locks = _pages(), TextStore(memory), {name: threading.Lock() for name in models}

    @app.get("/api/models")
    def list_models() -> list[dict[str, Any]]:
        kept = {name: one.steps for name, one in history.items()}
        return [model_record(name, model, kept.get(name, ())) for name, model in models.items()]

    @app.post("/api/read")
    def read_text(request: Request, body: dict[str, Any]) -> dict[str, Any]:
        asked = ReadRequest.model_validate(body)
        if asked.model not in models:
            raise InputError(f"there is no model {asked.model!r} here", choose(asked.model, models))
        if asked.step is not None and asked.model not in history:
            raise InputError(f"the training of {asked.model!r} kept no weights", "leave the step out")
        with locks[asked.model]:
            model = models[asked.model] if asked.step is None else history[asked.model].at(asked.step)
            wanted = Wanted(asked.text, asked.target, asked.new_tokens)
            reading = read(asked.model, model, wanted, longest)
        return {"reading": store.put(_session(request), reading), **reading.record()}

    @app.post("/api/ask/{what}")
    def ask(what: str, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        if what not in QUESTIONS:
            raise InputError(f"there is no question {what[:40]!r}", choose(what[:40], QUESTIONS))
        reading = store.get(_session(request), str(body.pop("reading", "")))
        question, answer = QUESTIONS[what]
        # What is cut or switched off is so for everybody who asks the model meanwhile; a recording is asked by many.
        with nullcontext() if what in OF_RECORDINGS else locks[reading.name]:
            return answer(reading, question.model_validate(body))

    @app.get("/{path:path}")
    def page(path: str) -> Response:
        if path not in pages:
            return JSONResponse({"error": "there is no such page", "remedy": "open /"}, 404)
        kind, content = pages[path]
        return Response(content, media_type=kind)

    return app


def _say_what_is_wrong(app: FastAPI) -> None:
    """Whatever a request is refused for, the answer is a sentence with a remedy.

    What a model has to say against a text is an answer, 200: a browser writes every other status to its console, as if
    the page were broken. Those are left for requests that no page of ours makes.
    """

    @app.exception_handler(RegardError)
    def complain(request: Request, error: RegardError) -> JSONResponse:
        gone = {"gone": True} if isinstance(error, GoneError) else {}
        return JSONResponse({"error": error.problem, "remedy": error.remedy, **gone})

    @app.exception_handler(ValidationError)
    def misasked(request: Request, error: ValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        return JSONResponse(
            {"error": f"{place}: {first['msg']}", "remedy": "open the page anew, if it asked for this"}, 422
        )

    @app.exception_handler(RequestValidationError)
    def unread(request: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"error": "the request is no JSON object", "remedy": "open the page anew"}, 422)

    @app.exception_handler(HTTPException)
    def misplaced(request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": str(error.detail), "remedy": "open the page anew"}, error.status_code)


def _session(request: Request) -> str:
    """The name that a page gives itself."""
    name = request.headers.get("x-session", "")
    if not NAME.fullmatch(name):
        raise InputError("the request does not say which page it is from", "open the page anew")
    return name


def _pages() -> dict[str, tuple[str, str]]:
    """All there is to be fetched, by its address."""
    assets = files("regard.views").joinpath("assets")
    found: dict[str, tuple[str, str]] = {}
    _collect(assets, "assets/", found)
    found[""] = found["assets/explorer/index.html"]
    return found


def _collect(folder: Traversable, above: str, found: dict[str, tuple[str, str]]) -> None:
    for one in folder.iterdir():
        ending = f".{one.name.rpartition('.')[2]}"
        if one.is_dir():
            _collect(one, f"{above}{one.name}/", found)
        elif ending in KINDS:
            found[above + one.name] = (KINDS[ending], one.read_text(encoding="utf-8"))
