"""SQuAD 1.1 from a small published encoder on a GPU: trained, then measured by the definitions of its official scorer.

    python benchmarks/squad_on_gpu.py FOLDER --out squad-h200.json

FOLDER holds train-v1.1.json.gz, dev-v1.1.json.gz and minilm, the model folder of all-MiniLM-L6-v2 (22.7M parameters; its
weights may be in bfloat16). What is trained is the recipe `squad` with these changes; `--set` adds others. Nothing is
chosen on the questions it is measured on: the model is that of the last step.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch

import regard
from regard.bench.timing import circumstances
from regard.files import write_json
from regard.tasks.own_data import own_examples
from regard.training.journal import read_metrics

STEPS = 1800
"""About three epochs."""
CHANGES = {
    "data.train": "train-v1.1.json.gz",
    "data.valid": "dev-v1.1.json.gz",
    "data.test": "dev-v1.1.json.gz",
    "training.steps": STEPS,
    "training.batch_tokens": 24576,
    "training.learning_rate": 3e-4,
    "training.warmup": 150,
    "training.evaluate_every": STEPS,
    "training.save_every": STEPS,
}


def measured(folder: Path, run: Path, more: list[str], examples: int | None) -> Iterator[dict[str, Any]]:
    """How long the training takes, and what the model then answers."""
    given = {"model.from": str(folder / "minilm"), "data.folder": str(folder), **CHANGES}
    changes = [f"model.from={given.pop('model.from')}", *(f"{key}={value}" for key, value in given.items()), *more]
    begun = time.perf_counter()
    model = regard.train("squad", run, changes=changes, progress=True)
    seconds = time.perf_counter() - begun
    lines = read_metrics(run)
    speed = median(line["tokens_per_second"] for line in lines)
    yield {
        "what": f"training, {len(lines):,} steps, reading the data counted",
        "figure": f"{seconds:.0f} s",
        "seconds": seconds,
        "tokens_per_second": speed,
        "changes": changes,
    }
    questions, name = own_examples(model.task, model.recipe, examples)
    begun = time.perf_counter()
    found = model.evaluate(questions)
    seconds = time.perf_counter() - begun
    for metric in ("f1", "exact_match"):
        yield {
            "what": f"{metric} of {len(questions):,} questions of {name}",
            "figure": f"{100 * found[metric]:.2f}",
            "seconds": seconds,
            **found,
        }


def main() -> None:
    """Train, measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the data and the model to begin with")
    parser.add_argument("--out", type=Path, required=True, help="the file of figures")
    parser.add_argument("--run", type=Path, help="keep the trained model there")
    parser.add_argument("--set", action="append", default=[], dest="more", help="change one key of the recipe more")
    parser.add_argument("--examples", type=int, help="measure on at most so many questions")
    asked = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = []
    with tempfile.TemporaryDirectory() as room:
        for row in measured(asked.folder.resolve(), asked.run or Path(room) / "run", asked.more, asked.examples):
            rows.append({"contestant": "regard", **row})
            print(f"{row['what']}: {row['figure']}", flush=True)
            write_json(
                asked.out,
                {**circumstances(device), "command": f"python benchmarks/squad_on_gpu.py {asked.folder}", "rows": rows},
            )


if __name__ == "__main__":
    main()
