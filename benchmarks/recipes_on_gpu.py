"""What two recipes reach on a GPU, and that a GPU answers as a CPU does; written as benchmarks/results/*-h200.json are.

    regard train gpt-shakespeare --out RUN --set data.folder=FOLDER --set training.seed=1 --json > TRAINED
    python benchmarks/recipes_on_gpu.py shakespeare RUN --trained TRAINED --out shakespeare-h200.json

    regard train multi30k-en-de --out RUN --set data.folder=FOLDER --set training.seed=1 --json > TRAINED
    python benchmarks/recipes_on_gpu.py multi30k RUN --trained TRAINED --out multi30k-h200.json

The second evaluates by the recipe's beam of 5, then answers the test sentences greedily and by beam on both devices in
float32. Where the texts differ, both are given with their scores on both devices, so that it can be seen how near each
other they were. `--trained` is left out where a run was stopped: then how long it took is not said.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import torch

import regard
from regard.bench.timing import circumstances
from regard.data.corpus import Pair
from regard.files import write_json
from regard.tasks.recipe import read_recipe
from regard.tasks.task import held_out
from regard.training.journal import read_metrics

Row = dict[str, Any]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STRATEGIES = {"greedy": regard.Greedy(), "beam 5": regard.Beam(5)}
WORKERS = 4
LOOKED_AT = 50
GROUP = 64
"""Texts decoded side by side; the parts of a CPU's work are multiples, so that batches are the same on both."""


def shakespeare(run: Path, trained: Row | None) -> Iterator[Row]:
    """The best loss on the whole validation text, and how long that took."""
    yield from training(run, trained)


def training(run: Path, trained: Row | None) -> Iterator[Row]:
    """Of a finished run: its best validation loss and where, its speed, its time."""
    lines = read_metrics(run)
    losses = {int(line["step"]): line["validation_loss"] for line in lines if "validation_loss" in line}
    if not losses:
        raise SystemExit(f"{run} was stopped before its first evaluation")
    best = min(losses, key=losses.__getitem__)
    yield {
        "what": f"{run.name}: best validation loss",
        "figure": f"{losses[best]:.4f} at step {best:,} of {len(lines):,}",
        "best": losses[best],
        "steps": len(lines),
        "validation": losses,
    }
    speed = median(line["tokens_per_second"] for line in lines)
    yield {"what": f"{run.name}: tokens read in training", "figure": f"{speed:,.0f} tokens/s", "median": speed}
    if trained is not None:
        yield {"what": f"{run.name}: training", "figure": f"{trained['seconds']:,.0f} s", "seconds": trained["seconds"]}


def multi30k(run: Path, trained: Row | None) -> Iterator[Row]:
    """The training, the test set's BLEU and how long it takes, and how a GPU's answers compare with a CPU's."""
    yield from training(run, trained)
    yield from evaluated(run)
    model = regard.load(run, DEVICE, "float32")
    pairs: list[Pair] = held_out(model.task.open(model.recipe, ["test"]), "test")
    sources = [pair.source for pair in pairs]
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn"), initializer=_few_threads) as pool:
        for name in STRATEGIES:
            yield compared(run, model, sources, name, pool)
    yield looked_at(run, model, pairs[:: len(pairs) // LOOKED_AT])


def evaluated(run: Path) -> Iterator[Row]:
    """`regard evaluate` as a user types it."""
    command = ["evaluate", str(run), "--device", DEVICE, "--precision", "float32", "--json"]
    begun = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "regard", *command], check=True, stdout=subprocess.PIPE, text=True)
    seconds = time.perf_counter() - begun
    found = json.loads(done.stdout)
    for name in ("bleu", "chrf"):
        yield {
            "what": f"{run.name}: {name} of {found['examples']:,} test sentences, beam 5",
            "figure": f"{found['metrics'][name]:.2f}",
            **found["metrics"],
        }
    what = f"{run.name}: `regard evaluate` of {found['examples']:,} test sentences, beam 5, its start counted"
    yield {"what": what, "figure": f"{seconds:.1f} s", "seconds": seconds}


def compared(run: Path, model: regard.Model, sources: list[str], name: str, pool: ProcessPoolExecutor) -> Row:
    """All sentences answered on both devices; where the answers differ, how near each other they were."""
    share = -(-len(sources) // (WORKERS * GROUP)) * GROUP
    parts = [sources[first : first + share] for first in range(0, len(sources), share)]
    begun = time.perf_counter()
    slow = [one for part in pool.map(_on_cpu, [(run, part, name) for part in parts]) for one in part]
    between = time.perf_counter()
    fast = answers(model, sources, name)
    ended = time.perf_counter()
    other = regard.load(run, "cpu", "float32")
    different = []
    for source, (one, one_score), (two, two_score) in zip(sources, slow, fast, strict=True):
        if one != two:
            gap = abs(other.score(source, one).total - other.score(source, two).total)
            scores = {"cpu_score": one_score, "cuda_score": two_score, "gap": gap}
            different.append({"source": source, "cpu": one, "cuda": two, **scores})
    apart = max((abs(one[1] - two[1]) for one, two in zip(slow, fast, strict=True) if one[0] == two[0]), default=0.0)
    return {
        "what": f"{run.name}: {len(sources):,} answers in float32, {name}: texts that are not the CPU's",
        "figure": f"{len(different)}",
        "different": different,
        "largest_difference_of_scores_where_equal": apart,
        "seconds_cuda": ended - between,
        f"seconds_cpu_{WORKERS}_processes": between - begun,
    }


def answers(model: regard.Model, sources: list[str], name: str) -> list[tuple[str, float]]:
    """Texts and scores."""
    found = model.answers(sources, STRATEGIES[name])
    return [(one.text, float(one.record["score"])) for one in found]


def looked_at(run: Path, model: regard.Model, pairs: list[Pair]) -> Row:
    """The weights of every layer while a reference is read, and while the model writes greedily, on both devices."""
    other = regard.load(run, "cpu", "float32")
    largest, same = 0.0, 0
    for pair in pairs:
        recordings = [[one.look(pair.source, target=pair.target) for one in (model, other)]]
        with regard.watch(model) as fast, regard.watch(other) as slow:
            texts = [one.run(pair.source, strategy=regard.Greedy()) for one in (model, other)]
        if texts[0] == texts[1]:
            same += 1
            recordings.append([fast, slow])
        for one, two in recordings:
            for layer in two.layers:
                difference = (one.weights(layer).cpu() - two.weights(layer)).abs().max()
                largest = max(largest, float(difference))
    return {
        "what": f"{run.name}: `look` at {len(pairs)} sentences: largest difference of a weight from the CPU's",
        "figure": f"{largest:.1e}",
        "largest": largest,
        "written_alike": same,
    }


def _few_threads() -> None:
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // WORKERS))


def _on_cpu(asked: tuple[Path, list[str], str]) -> list[tuple[str, float]]:
    run, sources, name = asked
    return answers(regard.load(run, "cpu", "float32"), sources, name)


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["shakespeare", "multi30k"])
    parser.add_argument("run", type=Path, help="the folder of a run, stopped or finished")
    parser.add_argument("--trained", type=Path, help="what `regard train --json` printed of it")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    trained = json.loads(given.trained.read_text()) if given.trained else None
    measure, recipe = {"shakespeare": (shakespeare, "gpt-shakespeare"), "multi30k": (multi30k, "multi30k-en-de")}[
        given.what
    ]
    rows = []
    for row in measure(given.run, trained):
        rows.append({"contestant": "regard", **row})
        print(
            f"{row['what']}: {row['figure']}",
            {k: v for k, v in row.items() if k not in ("what", "figure", "validation")},
            flush=True,
        )
        seed = read_recipe(str(given.run / "recipe.toml")).training.seed
        began = f"regard train {recipe} --set data.folder=FOLDER --set training.seed={seed}"
        command = f"{began}; python benchmarks/recipes_on_gpu.py {given.what} RUN"
        about = circumstances(DEVICE)
        write_json(given.out, {**about, "command": command, "seed": seed, "rows": rows})


if __name__ == "__main__":
    main()
