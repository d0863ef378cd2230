"""A user's script type-checks against `import regard`, and its mistakes are caught: mypy, as a user would call it.

The configuration and the cache are the project's own, so that after `make check` little is left to do.
"""

import re
from pathlib import Path

from mypy import api

ROOT = Path(__file__).parents[1]

RIGHT = """
import torch
from pathlib import Path
import regard

query = torch.randn(2, 3, 5, 4)
mixed: torch.Tensor = regard.attend(query, query, query, mask=regard.Causal() & regard.Window(3))
mixed = regard.attend(query, query, query, mask=lambda batch, head, query, key: key <= query)
model: regard.Model = regard.load(Path("runs") / "demo")
print(model.run("de: 3 mars 2021", strategy=regard.Beam(5)))
with regard.watch(model) as seen:
    model.run(["one", "two"])
weights: torch.Tensor = seen.weights("encoder.0.self", head=0, rows=[-1])
names: tuple[str, ...] = seen.tokens(batch=0).rows
total: float = model.score("source", "target").total
regard.train("dates", "runs/dates", changes={"training.steps": 10}, progress=False)
pieces: list[str] = regard.tokenizer.train("corpus.txt", 300).pieces([1, 2])
near: float = regard.vectors.load("vectors.txt").neighbours("king")[0].similarity
"""

WRONG = {
    "regard.atend(1)": "attr-defined",
    "regard.load(3)": "arg-type",
    "regard.attend('query', query, query)": "arg-type",
    "regard.attend(query, query, query, mask=True)": "arg-type",
    "regard.Causal() & True": "operator",
    "regard.Window('3')": "arg-type",
    "regard.load('runs/demo').run('x', strategy='beam')": "arg-type",
    "regard.train('dates', 'out', chnages=['training.steps=3'])": "call-arg",
    "regard.tokenizer.load('tokenizer.json').encode(7)": "arg-type",
    "regard.vectors.load('v.txt').neighbors('king')": "attr-defined",
}


def test_a_right_script_passes_and_every_mistake_is_caught(tmp_path, monkeypatch):
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(RIGHT, encoding="utf-8")
    begun = ["import torch", "import regard", "query = torch.randn(2, 3, 5, 4)"]
    wrong.write_text("\n".join([*begun, *WRONG]), encoding="utf-8")
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("MYPYPATH", str(ROOT / "src"))
    said, failed, _ = api.run(["--no-error-summary", str(right), str(wrong)])
    assert not failed
    found = re.findall(r"wrong\.py:(\d+): error: .*\[([a-z-]+)\]", said)
    assert found == [(str(line), code) for line, code in enumerate(WRONG.values(), start=len(begun) + 1)], said
    assert "right.py" not in said
