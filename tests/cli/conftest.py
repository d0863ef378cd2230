"""`regard …` in this process, and a model folder to ask; it learnt for three steps and answers nonsense."""

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from small_model import RECIPE, SMALL, Answer

import regard
from regard.cli.app import main
from regard.data import stream

Call = Callable[..., Answer]


@pytest.fixture(autouse=True, scope="package")
def _quick() -> Iterator[None]:
    """Small pools: the models are so small that larger ones only cost time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "POOL", 64)
        yield


@pytest.fixture(scope="package")
def model(tmp_path_factory: pytest.TempPathFactory, _quick: None) -> Path:
    """The folder of a translator of dates. Tests copy it before they change it."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    regard.train(RECIPE, folder, changes=SMALL)
    return folder


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command as the shell would; `stdin` is bytes."""

    def run(*arguments: object, stdin: bytes = b"") -> Answer:
        monkeypatch.setattr(sys, "argv", ["regard", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return Answer(int(end.value.code or 0), out, err)

    return run


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run in an empty folder of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
