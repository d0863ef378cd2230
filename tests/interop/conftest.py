"""The tokenizers of tests/text and the tiny models of tests/parity serve here too."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

for folder in ("text", "parity", "cli"):
    sys.path.append(str(Path(__file__).parents[1] / folder))

from small_model import Answer  # noqa: E402

from regard.cli.app import main  # noqa: E402


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Run a command as the shell would."""

    def run(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["regard", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return Answer(int(end.value.code or 0), out, err)

    return run
