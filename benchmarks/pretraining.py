"""Whether pre-training pays where labels are few: on tales, for a BERT and for a T5, beside twins that begin anew.

    python benchmarks/pretraining.py FOLDER [--seeds 3] [--examples 100]

An encoder learns hidden words of 20,000 tales (Devlin et al. 2018), then the mood of 100 tales; an encoder–decoder
learns to write what is missing in spans (Raffel et al. 2020), then the summaries of 100. The twins have the same shape,
the same 100 examples and twice the steps, and no first part; of each the best by validation loss is taken. What is
measured is held out: no test tale has the hero, thing and place of one that was trained on.
"""

import argparse
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import regard
from regard.tasks.own_data import own_examples

TALES = {"corpus": "tales", "options": {"shortest": 40}}
TOKENS = {"kind": "wordpiece", "size": 1000, "sample": 2000}
SHAPE = {
    "layers": 2,
    "width": 128,
    "heads": 4,
    "feedforward_width": 256,
    "norm_placement": "pre",
    "positions": "t5",
    "init": "mimetic",
    "dropout": 0.0,
}
ENCODER: dict[str, Any] = SHAPE | {"architecture": "encoder"}
BOTH: dict[str, Any] = SHAPE | {"architecture": "encoder_decoder", "encoder_layers": 2}
FIRST = {
    "steps": 1500,
    "batch_tokens": 2048,
    "learning_rate": 3e-3,
    "optimizer": "muon",
    "warmup": 50,
    "schedule": "cosine",
    "label_smoothing": 0.0,
    "evaluate_every": 1500,
    "save_every": 1500,
}
SECOND = FIRST | {"steps": 150, "batch_tokens": 1024, "learning_rate": 1e-3, "evaluate_every": 15, "save_every": 150}
FAMILIES = {
    "BERT": ("masked", "classification", ENCODER | {"head": "masked"}, ENCODER | {"head": "labels"}, "accuracy"),
    "T5": ("denoising", "summarisation", BOTH, BOTH, "rougeL"),
}


def recipe(task: str, model: dict[str, Any], training: dict[str, Any], window: int, **options: int) -> regard.Recipe:
    """A recipe on tales; one that begins with a folder has its tokenizer."""
    data = TALES | {"options": {**TALES["options"], **options}, "window": window}  # type: ignore[dict-item]
    values = {"task": task, "data": data, "model": {"name": "transformer"} | model, "training": training}
    if "from" in model:
        values["model"] = model
    else:
        values["tokenizer"] = TOKENS
    if task == "summarisation":
        values["decoding"] = {"max_new_tokens": 32}
    return regard.Recipe.model_validate(values)


def figure(family: str, folder: Path, seed: int, few: int, held_out: int) -> tuple[float, float]:
    """Of a model that was pre-trained and of its twin."""
    first, task, before, shape, metric = FAMILIES[family]
    begun = folder / f"{family}-{seed}-first"
    if not (begun / "model.safetensors").exists():
        regard.train(recipe(first, before, FIRST | {"seed": seed}, 128), begun, progress=True)
    found = []
    for name, model, training in (
        ("second", {"from": str(begun)}, SECOND),
        ("twin", shape, SECOND | {"steps": 2 * SECOND["steps"]}),  # type: ignore[operator]
    ):
        plan = recipe(task, model, training | {"seed": seed}, 192, examples=few, held_out=held_out)
        trained = regard.train(plan, folder / f"{family}-{seed}-{name}", progress=True)
        examples, _ = own_examples(trained.task, trained.recipe, held_out)
        found.append(trained.evaluate(examples)[metric])
    return found[0], found[1]


def main() -> None:
    """Every family and seed, printed as it comes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--examples", type=int, default=100, help="that have labels")
    parser.add_argument("--held-out", type=int, default=400, help="to measure on")
    parser.add_argument("--family", choices=tuple(FAMILIES), action="append")
    given = parser.parse_args()
    for family in given.family or FAMILIES:
        pairs = [figure(family, given.folder, seed, given.examples, given.held_out) for seed in range(given.seeds)]
        for name, values in zip(("pre-trained", "from scratch"), zip(*pairs, strict=True), strict=True):
            spread = f" ± {stdev(values):.3f}" if len(values) > 1 else ""
            said = ", ".join(f"{one:.3f}" for one in values)
            print(f"{family}, {FAMILIES[family][4]}, {name}: {mean(values):.3f}{spread} ({said})", flush=True)


if __name__ == "__main__":
    main()
