"""Every attention mechanism on one GPU: how it grows with length, and what it learns of far-apart things.

    python benchmarks/mechanisms_on_gpu.py --only growth --out OUT --results FOLDER
    python benchmarks/mechanisms_on_gpu.py --only imdb listops recall --imdb FOLDER --out OUT --results FOLDER

growth    `regard bench attention` to 131,072 tokens, in both directions and causal
recall    at 512, 1,024 and 4,096 tokens, 2 layers × 128, at most --seconds of training each, and none beyond 99.9 %;
          4,096 is learnt at 512, 1,024 and 2,048 tokens first, each until 90 % of the answers are right there
listops   exact, Longformer, Linformer, Reformer and Performer by the recipe, on as many texts as the paper's (160,000)
imdb      by bytes: Longformer reading 4,096, and the same model cut at 512, as many reviews a step, 3 seeds; FOLDER is
          of benchmarks/imdb.py

The same command goes on where it stopped, until it says that all is there: trainings from their states in OUT, and what
is over from FOLDER/NAME-DEVICE.json (as benchmarks/results has them), which are written after each. --at-once
trainings run side by side, each in a process of its own that goes by the registry of mechanisms; on a GPU through
NVIDIA's Multi-Process Service where that starts, so that small kernels of one run beside those of another. --smoke does
all of it in tiny sizes, to see that it runs: those figures mean nothing. What is trained is measured in the next call
where this one has no time for it; --examples measures IMDB on fewer than its 25,000.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from side_by_side import (
    Bench,
    Job,
    Row,
    Stage,
    key_of,
    known_rows,
    parser_of,
    results_file,
    run_asked,
    say,
    settled,
    sharing,
    side_by_side,
)

import regard.blocks.config  # noqa: F401  (registers every mechanism)
from regard.attention import flex
from regard.attention.mechanism import MECHANISMS
from regard.bench import growth
from regard.bench.timing import circumstances
from regard.files import write_json
from regard.plugins import load_plugins

GROUPS = {"growth": "mechanisms", "recall": "recall", "listops": "listops", "imdb": "imdb"}
"""And the names of their files."""
LENGTHS = {512: 16384, 1024: 32768, 4096: 65536}
"""Of recall, with the tokens of a batch."""
STAGES = {4096: (512, 1024, 2048, 4096)}
"""Lengths that are learnt one after another."""
SOLVED, PASSED = 0.999, 0.9
LISTOPS = ("exact", "longformer", "linformer", "reformer", "performer")
PUBLISHED = {"listops": {"Transformer, as published (Tay et al. 2020, table 1)": "36.37 %"}}
SEEDS = (0, 1, 2)
WINDOWS = {4096: 65536, 512: 24576}
"""Of IMDB, with the tokens of a batch: about 48 reviews in each."""
SMOKE = ("model.width=16", "model.layers=1", "model.heads=2", "training.warmup=1", "training.evaluate_every=2")


def attention(name: str, tokens: int) -> str:
    """The change that chooses a mechanism; one that has to know the longest text is told it."""
    longest = f", max_tokens = {tokens}" if "max_tokens" in MECHANISMS[name].model_fields else ""
    return f'model.attention={{name = "{name}"{longest}}}'


def recall(given: argparse.Namespace) -> Iterator[Job]:
    """Encoders where a mechanism looks in both directions, else decoders with exact attention's beside them."""
    causal_only = [name for name, shape in MECHANISMS.items() if not shape.abilities.bidirectional]
    kinds = {"encoder": growth.able(False), "decoder": ["exact", *causal_only] if causal_only else []}
    lengths = {160: 640, 256: 1024} if given.smoke else LENGTHS
    for length in sorted(lengths, reverse=True):
        ladder = (160, 256) if given.smoke and length == 256 else STAGES.get(length, (length,))
        for kind, names in kinds.items():
            for name in names:
                model = (attention(name, length), f"model.architecture={kind}", *(SMOKE[:3] if given.smoke else ()))
                stages = tuple(
                    Stage(str(one), (*model, *_recalling(one, lengths[length], given)), _enough(one, length, given))
                    for one in ladder
                )
                how = f", {', '.join(f'{one:,}' for one in ladder[:-1])} first" if len(ladder) > 1 else ""
                what = f"recall at {length:,} tokens{how}, {kind}, 2 layers × 128"
                yield Job("recall", f"{length}-{kind}-{name}", what, name, "recall", stages, given.seconds)


def _recalling(length: int, batch: int, given: argparse.Namespace) -> tuple[str, ...]:
    every, steps, held_out = (2, 6, 4) if given.smoke else (50, 20000, 200)
    return (
        *(f"data.options.length={length}", f"data.options.held_out={held_out}", f"training.batch_tokens={batch}"),
        *("training.compile=false", "training.schedule=constant", f"training.steps={steps}", "training.warmup=100"),
        *(f"training.evaluate_every={every}", "training.save_every=1000", "training.metric=accuracy"),
        *("training.metric_examples=50", "training.keep=1"),
    )


def _enough(length: int, last: int, given: argparse.Namespace) -> float:
    return 0.0 if given.smoke and length < last else SOLVED if length == last else PASSED


def listops(given: argparse.Namespace) -> Iterator[Job]:
    """By the recipe, but for half its steps."""
    tokens = 220 if given.smoke else 2000
    for name in (one for one in LISTOPS if one in MECHANISMS):
        changes: tuple[str, ...] = (attention(name, tokens), "training.compile=false", "training.keep=1")
        if given.smoke:
            changes += (*SMOKE, "data.options={shortest = 100, longest = 220, held_out = 8}", "training.steps=4")
            changes += ("training.batch_tokens=880", f"data.window={tokens}", "tokenizer.sample=20")
        else:
            changes += ("training.steps=2500",)
        yield Job("listops", name, "ListOps, 4 layers × 128", name, "listops", (Stage("", changes),))


def imdb(given: argparse.Namespace) -> Iterator[Job]:
    """Two windows, three seeds."""
    if given.imdb is None:
        raise SystemExit("--only imdb needs --imdb FOLDER, made by benchmarks/imdb.py")
    windows = {256: 1024, 64: 512} if given.smoke else WINDOWS
    for seed in SEEDS:
        for window, batch in windows.items():
            changes: tuple[str, ...] = (
                *(attention("longformer", window), f"data.folder={given.imdb.resolve()}", f"data.window={window}"),
                *(f"training.batch_tokens={batch}", f"training.seed={seed}", "training.compile=false"),
                *("training.keep=1", f"data.round_to={32 if given.smoke else 512}"),
                *((*SMOKE, "training.steps=4") if given.smoke else ("training.steps=3000",)),
            )
            what = f"IMDB by bytes, 4 layers × 128, seed {seed}"
            name, contestant = f"{window}-seed{seed}", f"longformer, {window:,} bytes"
            yield Job("imdb", name, what, contestant, "imdb", (Stage("", changes),), examples=given.examples)


def jobs(given: argparse.Namespace) -> list[Job]:
    """Of the groups that were asked for, in their order."""
    makers = {"recall": recall, "listops": listops, "imdb": imdb}
    found = (job for group in given.only for job in makers[group](given))
    return [job for job in found if given.mechanisms is None or job.contestant.split(",")[0] in given.mechanisms]


BENCH = Bench(Path(__file__), GROUPS, jobs, published=PUBLISHED)


def grow(given: argparse.Namespace, device: str, until: float) -> bool:
    """The lengths one after another, both kinds; whether all is there."""
    path = results_file(BENCH, "growth", given, device)
    kept = {key_of(row): row for row in known_rows(BENCH, "growth", given, device) if "tokens" in row}
    chosen = None if given.mechanisms is None else [one for one in given.mechanisms if one in MECHANISMS]
    lengths = (256, 512, 1024) if given.smoke else None
    ended = []
    for causal in (False, True):
        row: Row = {}
        allowed = time.monotonic() + until - time.time()
        options = {"causal": causal, "mechanisms": chosen, "known": list(kept.values()), "until": allowed}
        for row in growth.rows(device, lengths, **options, together=device == "cuda"):
            kept[key_of(row)] = row
            about = circumstances(device) | {"command": "python " + " ".join(sys.argv)}
            write_json(path, {**about, "rows": list(kept.values())})
            words = row.get("figure") or f"{row['milliseconds']:.2f} ms, {row.get('peak_bytes', 0) / 1e6:,.0f} MB"
            say(f"{row['what']}, {row['contestant']}, {row.get('tokens', 'in all')}: {words}")
        ended.append("time_exponent" in row)
    return all(ended)


def main() -> None:
    """Measure, print, keep."""
    parser = parser_of(__doc__, GROUPS)
    parser.add_argument("--seconds", type=float, default=120.0, help="of training, for recall")
    parser.add_argument("--imdb", type=Path, help="the folder of train.gz and test.gz")
    parser.add_argument("--mechanisms", nargs="+", help="these alone")
    parser.add_argument(
        "--static", action="store_true", help="FlexAttention compiled for each shape, should that for any shape fail"
    )
    given = parser.parse_args()
    load_plugins()
    if given.static:
        flex.OPTIONS["dynamic"] = False
    if given.job is not None:
        run_asked(BENCH, given)
    if "growth" in given.only and len(given.only) > 1:
        raise SystemExit("growth is measured by itself: ask for it alone")
    until, device = time.time() + 60 * given.minutes, settled(given)
    if "growth" in given.only:
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
        done = grow(given, device, until)
    else:
        with sharing(device) as environment:
            done = side_by_side(BENCH, given, device, until, environment)
    say("all is there" if done else "not all is there yet: the same command goes on")


if __name__ == "__main__":
    main()
