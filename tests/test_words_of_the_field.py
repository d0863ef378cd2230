"""Names are the field's own: words that stood for them before are in no file's name, no identifier and no docstring."""

import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FORMER = {
    "theirs": "Hugging Face's, PyTorch's …",
    "ours": "Regard's",
    "gaze": "word_attention",
    "manners": "generation_config",
    "is_foreign": "is_huggingface",
    "framing": "template",
    "lesson": "TrainingData",
    "surroundings": "LayerContext",
    "blind_rows": "fully_masked_rows",
    "around_self": "self_residual",
    "read_odd": "from_hf_extra",
    "write_odd": "to_hf_extra",
    "both_directions": "bidirectional",
}
"""A name of before, in small letters, and what it is now."""
HERE = Path(__file__).name


def words_of(name: str) -> set[str]:
    """A name, its parts in small letters, and every run of them: `draw_gaze` and `DrawGaze` hold `gaze`."""
    parts = [part.lower() for part in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name)]
    return {"_".join(parts[begin:end]) for begin in range(len(parts)) for end in range(begin + 1, len(parts) + 1)}


def names_of(path: Path) -> set[str]:
    """Every identifier of a Python file, by way of its tokens."""
    source = io.StringIO(path.read_text(encoding="utf-8"))
    found = {token.string for token in tokenize.generate_tokens(source.readline) if token.type == tokenize.NAME}
    return found | {path.stem}


FILES = sorted(path for folder in ("src", "tests", "docs") for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("folder", ["src", "tests", "docs"])
def test_no_identifier_and_no_file_has_a_former_name(folder):
    found = []
    for path in FILES:
        if path.relative_to(ROOT).parts[0] == folder and path.name != HERE:
            found += [f"{path}: {name}" for name in names_of(path) if words_of(name) & set(FORMER)]
    drawn = [path for path in (ROOT / folder).rglob("*") if path.is_file() and words_of(path.stem) & set(FORMER)]
    assert not found
    assert not drawn


def test_a_former_name_is_seen_in_every_spelling():
    for name in ("draw_gaze", "Gaze", "_show_gaze", "GazeOfAWord", "their_weights_and_ours", "isForeign"):
        assert words_of(name) & set(FORMER), name
    for name in ("stargazer", "hours", "courses", "is_huggingface"):
        assert not words_of(name) & set(FORMER), name
