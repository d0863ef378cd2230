"""What people ask of a small model, trained on one GPU: answers, labels, summaries, code; what pre-training is worth.

    squad        SQuAD 1.1 from MiniLM, as benchmarks/squad_on_gpu.py has it
    sst          SST-2 from MiniLM, all of it or by LoRA (as its recipe has it, and for longer), 3 seeds each
    vectors      SST-2 from scratch at width 50, by itself and with GloVe's or our Word2Vec's vectors, 3 seeds each
    labels       a set nobody tuned for: recipe classify from scratch and from MiniLM, 3 seeds; a bag of n-grams beside
    pretraining  masked LM (BERT) and span corruption (T5), then 100 labelled tales; twins without, 3 seeds
    long         questions about tales of 4,096 tokens: Longformer, and the same model cut at 512 (in windows; and the
                 beginning alone)
    t5           recipe tales-t5 (dates, questions, summaries, moods) and a twin for each single task
    docstrings   body to first sentence, packages held out; the body's first sentence and the whole body beside it
    python       code, modules held out, bits per byte: recipe python, and 6 layers × 384

Data are made beforehand by benchmarks/tasks_to_carry.py in .carry, which prints their sizes and what each call takes
along. A machine that takes 64 MiB a call, and keeps ignored files from one call to the next while it is warm, is given
them so:

    first call, carrying .gpu-packages .carry/squad .carry/sst .carry/vectors .carry/labels .carry/docstrings:
        PYTHONPATH=src:.gpu-packages PYTHONUNBUFFERED=1 python benchmarks/tasks_on_gpu.py --data .carry \\
            --out runs/tasks --results $OUT --minutes 9 --only t5 long docstrings pretraining vectors python labels
    second call, carrying .carry/minilm alone, as the rest is there:
        PYTHONPATH=src:.gpu-packages PYTHONUNBUFFERED=1 python benchmarks/tasks_on_gpu.py --data .carry \\
            --out runs/tasks --results $OUT --minutes 9 \\
            --only squad sst labels t5 long docstrings pretraining vectors python

The second goes on with what the first did not come to, after what needs MiniLM, and so does every further call of the
same words: `runs` is ignored too, and stays on the machine. Of a machine that is gone its tasks-h200.json, put into
benchmarks/results, says what need not be done again; then all is carried anew. A group without its data is left out,
and what to do is said. --smoke does all of it in tiny sizes, to see that it runs: those figures mean nothing.
"""

import argparse
import gzip
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pretraining
import side_by_side as machinery
import squad_on_gpu
from side_by_side import Bench, Job, Progress, Row, Stage, parser_of, run_asked, say, settled, sharing, side_by_side

from regard.api.model import Model
from regard.data.questions import Question, SpanExample, SpanFinding
from regard.data.tales.corpus import Tales
from regard.metrics.ngrams import BagOfNgrams
from regard.plugins import load_plugins
from regard.tasks.own_data import own_examples
from regard.tasks.recipe import Recipe
from regard.tasks.task import Measuring, held_out

SEEDS = (0, 1, 2)
NEEDED = {
    "squad": ("squad/train-v1.1.json.gz", "squad/dev-v1.1.json.gz", "minilm/model.safetensors"),
    "sst": ("sst/stsa.binary.train.gz", "minilm/model.safetensors"),
    "vectors": ("sst/stsa.binary.train.gz", "vectors/glove.txt.gz", "vectors/word2vec.txt.gz"),
    "labels": ("labels/train.tsv.gz", "labels/test.tsv.gz"),
    "docstrings": ("docstrings/train.jsonl.gz", "docstrings/valid.jsonl.gz", "docstrings/test.jsonl.gz"),
}
"""Files below --data; the other groups make theirs."""
GROUPS = dict.fromkeys(
    ("squad", "sst", "vectors", "labels", "pretraining", "long", "t5", "docstrings", "python"), "tasks"
)
WORDS = 3000
"""Of a long tale: with its question about 4,000 tokens, and never more than 4,096."""
TALES = {"train": 6000, "valid": 50, "test": 500}
"""Long ones: with so many events they are told before, side by side."""
TINY = ("training.warmup=1", "training.evaluate_every=2", "training.save_every=2", "training.compile=false")
SMALL = ("model.width=16", "model.layers=1", "model.heads=2", "model.feedforward_width=16")


def plan(given: argparse.Namespace, *changes: str, steps: int | None = None, tiny: Sequence[str] = SMALL) -> Stage:
    """The one stage of a job; in --smoke two steps of a tiny model."""
    sized = (*changes, *([f"training.steps={steps}"] if steps else []), "training.keep=1")
    return Stage("", (*sized, *tiny, *TINY, "training.steps=2") if given.smoke else sized)


def few(given: argparse.Namespace, most: int | None = None) -> int | None:
    """Examples to measure on."""
    return given.examples or (6 if given.smoke else most)


def squad(given: argparse.Namespace) -> Iterator[Job]:
    """As squad_on_gpu has it; in --smoke by tales."""
    data = given.data.resolve()
    changes = [f"model.from={data / 'minilm'}", f"data.folder={data / 'squad'}"]
    changes += [f"{key}={value}" for key, value in squad_on_gpu.CHANGES.items()]
    told = (given.out / "told").resolve()
    tiny = ("training.batch_tokens=768", f"data.folder={told}")
    tiny += tuple(f"data.{split}={split}.json" for split in ("train", "valid", "test"))
    stage = plan(given, *changes, "training.compile=false", tiny=tiny)
    yield Job("squad", "minilm", "SQuAD 1.1", "MiniLM", "squad", (stage,), metric="f1", examples=few(given))


def sst(given: argparse.Namespace) -> Iterator[Job]:
    """All parameters, or adapters; these also for longer, as their recipe's steps were chosen for a CPU."""
    data = given.data.resolve()
    longer = ("training.steps=900", "training.learning_rate=5e-4", "training.warmup=90")
    kinds = {"sst": ("sst", "all of it", ()), "sst-lora": ("sst-lora", "LoRA", ())}
    kinds["sst-lora-900"] = ("sst-lora", "LoRA, 900 steps at half the rate", longer)
    for seed in SEEDS:
        for name, (recipe, contestant, more) in kinds.items():
            changes = (f"model.from={data / 'minilm'}", f"data.folder={data / 'sst'}", f"training.seed={seed}", *more)
            stage = plan(given, *changes, "training.precision=auto", tiny=("training.batch_tokens=128",))
            what = f"SST-2 from MiniLM, seed {seed}"
            yield Job("sst", f"{name}-{seed}", what, contestant, recipe, (stage,), examples=few(given))


def vectors(given: argparse.Namespace) -> Iterator[Job]:
    """At the width of the vectors."""
    data, tiny = given.data.resolve(), ("model.layers=1", "tokenizer.size=400", "training.batch_tokens=256")
    files = {"no vectors": None, "GloVe 6B": "glove.txt.gz", "our Word2Vec": "word2vec.txt.gz"}
    for seed in SEEDS:
        for contestant, name in files.items():
            changes = [f"data.folder={data / 'sst'}", f"training.seed={seed}", "model.width=50", "model.heads=2"]
            changes += [f"model.vectors={data / 'vectors' / name}"] if name else []
            stage = plan(given, *changes, "training.compile=false", tiny=tiny)
            what = f"SST-2 from scratch, 2 layers × 50, seed {seed}"
            name = f"{contestant.split()[-1].lower()}-{seed}"
            yield Job("vectors", name, what, contestant, "sst", (stage,), examples=few(given))


def labels(given: argparse.Namespace) -> Iterator[Job]:
    """The recipe for one's own table as it stands."""
    data = given.data.resolve()
    own = (f"data.folder={data / 'labels'}", "data.train=train.tsv.gz", "data.split=0.9", "data.test=test.tsv.gz")
    begun = (data / "minilm/model.safetensors").is_file()
    for seed in SEEDS:
        for contestant in ("from scratch", *(["MiniLM, all of it"] if begun else [])):
            name, changes = (
                ("scratch", []) if contestant == "from scratch" else ("minilm", [f"model.from={data / 'minilm'}"])
            )
            tiny = (*SMALL[:2], "tokenizer.size=400") if name == "scratch" else ()
            seeded = (*changes, *own, f"training.seed={seed}", "training.compile=false")
            stage = plan(given, *seeded, tiny=(*tiny, "training.batch_tokens=600"))
            what = f"labels of {len(kinds_of(data))} kinds, seed {seed}"
            yield Job("labels", f"{name}-{seed}", what, contestant, "classify", (stage,), examples=few(given))


@cache
def kinds_of(data: Path) -> set[str]:
    """Its different labels."""
    with gzip.open(data / "labels" / "test.tsv.gz", "rt", encoding="utf-8") as stream:
        return {line.rstrip("\n").rpartition("\t")[2] for line in stream}


def before(given: argparse.Namespace) -> Iterator[Job]:
    """Pre-trained and not, as benchmarks/pretraining.py has them."""
    count, tested = (40, 8) if given.smoke else (100, 400)
    tiny = {"steps": 2, "warmup": 1, "evaluate_every": 2, "save_every": 2} if given.smoke else {}
    for seed in SEEDS:
        for family, (first, task, begins, shape, metric) in pretraining.FAMILIES.items():
            always = {"seed": seed, "keep": 1, "compile": False}
            once = pretraining.recipe(first, begins, pretraining.FIRST | always | tiny, 128)
            options = {"examples": count, "held_out": tested}
            second = pretraining.recipe(task, shape, pretraining.SECOND | always | tiny, 192, **options)
            steps: Any = {"steps": 2 * pretraining.SECOND["steps"]}  # type: ignore[operator]
            twin = pretraining.recipe(task, shape, pretraining.SECOND | always | steps | tiny, 192, **options)
            what = f"{family}: {task} of tales, {count} labelled, seed {seed}"
            stages = (Stage("first", recipe=once), Stage("second", recipe=second))
            named = {"metric": metric, "examples": few(given, tested)}
            yield Job("pretraining", f"{family}-{seed}", what, "pre-trained", once, stages, **named)
            yield Job("pretraining", f"{family}-{seed}-twin", what, "from scratch", twin, (Stage(""),), **named)


def long(given: argparse.Namespace) -> Iterator[Job]:
    """Short tales teach long ones; the last are those that were told before."""
    whole, cut, words = (420, 128, 200) if given.smoke else (4096, 512, 380)
    batch, near = (2048, 16) if given.smoke else (65536, 256)
    tiny = (*SMALL, *TINY, "training.steps=2", "tokenizer.sample=100") if given.smoke else ()
    told = ("data.corpus=", "data.options=", f"data.folder={(given.out / 'told').resolve()}")
    told += ("data.train=train.json", "data.valid=valid.json", "data.test=test.json", "training.learning_rate=1e-3")
    for window in (whole, cut):
        every = (
            f'model.attention={{name = "longformer", window = {near}, global_before = 3}}',
            "training.compile=false",
        )
        every += ("training.keep=1", "training.metric=exact_match", "training.metric_examples=50")
        longer = (f"data.options.length={words}", f"data.window={window}", "training.steps=1000")
        longest = (f"data.window={window}", f"training.batch_tokens={batch}", "training.steps=700")
        stages = (
            Stage("96", (*every, f"data.window={min(192, window)}", *tiny)),
            Stage(str(cut), (*every, *longer, *tiny)),
            Stage(str(whole), (*every, *told, *longest, "training.evaluate_every=100", *tiny)),
        )
        what = f"questions about tales of {whole:,} tokens, Longformer, 3 layers × 128"
        named = {"metric": "exact_match", "examples": few(given), "seconds": 300.0}
        yield Job("long", str(window), what, f"reads {window:,}", "tales-questions", stages, **named)


def t5(given: argparse.Namespace) -> Iterator[Job]:
    """All tasks in one model, and each in its own."""
    tested = 24 if given.smoke else 2000
    alone = {
        one: ("data.corpus=tales", f'data.options={{asked = ["{one}"], shortest = 40}}')
        for one in ("question", "summary", "mood")
    }
    alone |= {"dates": ("data.corpus=dates", "data.options=")}
    tiny = (*SMALL, "model.encoder_layers=1", "tokenizer.sample=100", "training.batch_tokens=600")
    mixed = ('data.options={parts = ["dates", "tales shortest=40:3"], held_out = 2000}',)
    for name, changes in {"mixture": mixed, **alone}.items():
        stage = plan(given, *changes, "training.compile=false", tiny=tiny)
        contestant = "all by prefix" if name == "mixture" else f"{name} alone"
        most = few(given, tested if name == "mixture" else 1000)
        what = "dates, and questions, summaries and moods of tales"
        yield Job("t5", name, what, contestant, "tales-t5", (stage,), metric="exact_match", examples=most)


def docstrings(given: argparse.Namespace) -> Iterator[Job]:
    """The recipe as it stands, and a T5 that has filled gaps in the same bodies first."""
    data = (f"data.folder={(given.data / 'docstrings').resolve()}",)
    data += tuple(f"data.{split}={split}.jsonl.gz" for split in ("train", "valid", "test"))
    every = ("training.compile=false", "training.keep=1")
    tiny = ("tokenizer.size=600", "tokenizer.sample=200", "training.batch_tokens=600")
    what, end = "docstrings summed up, packages held out", {"metric": "rougeL", "examples": few(given)}
    scratch = plan(given, *data, *every, tiny=(*SMALL, "model.encoder_layers=1", *tiny))
    yield Job("docstrings", "recipe", what, "2 + 2 layers × 128, from scratch", "summary", (scratch,), **end)
    first = (*data, *every, "model.dropout=0.1", "training.steps=6000", "training.evaluate_every=1000")
    second = (*data, *every, "training.learning_rate=1e-3", "training.batch_tokens=4096")
    if given.smoke:
        first, second = (*first, *SMALL, *tiny, *TINY, "training.steps=2"), (*second, *TINY, "training.steps=2")
    second_stage = Stage("second", (*second, "data.window=192"), recipe="summary")
    stages = (Stage("first", first, recipe="denoising"), second_stage)
    yield Job("docstrings", "denoised", what, "4 + 4 layers × 256, gaps filled first", "summary", stages, **end)


def python(given: argparse.Namespace) -> Iterator[Job]:
    """As large as the recipe has it for a CPU, and larger."""
    larger = ("model.layers=6", "model.width=384", "model.heads=6", "model.feedforward_width=1024", "model.dropout=0.1")
    larger += ("data.window=256", "tokenizer.size=4096", "training.batch_tokens=32768", "training.precision=auto")
    sizes = {"recipe": ("4 layers × 128", ()), "larger": ("6 layers × 384", larger)}
    tiny = (
        *SMALL,
        "tokenizer.size=600",
        "tokenizer.sample=20",
        'data.options={only = ["json", "csv", "re"], held_out = 3000}',
    )
    for name, (contestant, changes) in sizes.items():
        stage = plan(given, *changes, "training.compile=false", tiny=(*tiny, "training.batch_tokens=1024"))
        what = "code of the standard library, modules held out"
        yield Job(
            "python", name, what, contestant, "python", (stage,), metric="bits_per_byte", examples=few(given, 10**6)
        )


def measured(job: Job, model: Model, recipe: Recipe, progress: Progress) -> Row:
    """Beside labels a bag of n-grams; of long tales also what their beginning alone tells."""
    found = machinery.measured(job, model, recipe, progress)
    if job.group == "labels":
        pairs, _ = own_examples(model.task, recipe, job.examples)
        train = held_out(model.task.open(recipe, ["train"]), "train", None)
        bag = BagOfNgrams([one.source for one in train], [one.target for one in train])
        right = bag.accuracy([one.source for one in pairs], [one.target for one in pairs])
        found["baselines"] = {"bag_of_ngrams": {"accuracy": right}}
    if job.group == "long":
        asked, _ = own_examples(model.task, recipe, job.examples)
        short = [beginning(one, model, int(job.name)) for one in asked]
        found["beginning_alone"] = model.evaluate(short, Measuring(progress=progress))
    return found


def beginning(asked: Question, model: Model, window: int) -> Question:
    """As much of its passage as one window holds."""
    first, *_ = SpanFinding(model.tokenizer, window=window).windows(asked)
    assert isinstance(first, SpanExample)
    return asked._replace(context=asked.context[: first.offsets[-1][1]])


def tell(folder: Path, words: int, counts: dict[str, int]) -> None:
    """Long tales with a question each, as files in SQuAD's format."""
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for split, count in counts.items():
            path = folder / f"{split}.json"
            if path.is_file():
                continue
            shortest = words // 10 if split == "train" else 0
            parts = [(split, words, shortest, first, min(first + 50, count)) for first in range(0, count, 50)]
            paragraphs = [one for part in pool.map(_told, parts) for one in part]
            path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")


def _told(asked: tuple[Any, int, int, int, int]) -> list[Row]:
    split, words, shortest, first, end = asked
    tales, found = Tales(length=words, shortest=max(shortest, 40) if shortest else 0, held_out=max(end, 1)), []
    for index in range(first, end):
        one = tales.question(split, index)
        answers = [{"text": text, "answer_start": start} for text, start in one.answers]
        found.append({"context": one.context, "qas": [{"question": one.question, "answers": answers}]})
    return found


MAKERS = {
    "squad": squad,
    "sst": sst,
    "vectors": vectors,
    "labels": labels,
    "pretraining": before,
    "long": long,
    "t5": t5,
    "docstrings": docstrings,
    "python": python,
}


def lacking(group: str, data: Path | None) -> str | None:
    """What a group has not got, and what to do."""
    needed = NEEDED.get(group, ())
    if needed and data is None:
        return f"{group} is left out: give --data FOLDER, made by benchmarks/tasks_to_carry.py"
    gone = [name for name in needed if not (data / name).is_file()]  # type: ignore[operator]
    return (
        f"{group} is left out: {data} has no {', '.join(gone)}; make it by benchmarks/tasks_to_carry.py"
        if gone
        else None
    )


def jobs(given: argparse.Namespace) -> list[Job]:
    """Of the groups that were asked for and have their data, in their order."""
    return [job for group in given.only if lacking(group, given.data) is None for job in MAKERS[group](given)]


BENCH = Bench(Path(__file__), GROUPS, jobs, measured)


def main() -> None:
    """Measure, print, keep."""
    parser = parser_of(__doc__, GROUPS)
    parser.add_argument("--data", type=Path, help="the folder that benchmarks/tasks_to_carry.py makes")
    given = parser.parse_args()
    load_plugins()
    if given.job is not None:
        run_asked(BENCH, given)
    until, device = time.time() + 60 * given.minutes, settled(given)
    missing = [said for group in given.only if (said := lacking(group, given.data))]
    for said in missing:
        say(said)
    if "long" in given.only or given.smoke:
        tell(given.out / "told", 300 if given.smoke else WORDS, dict.fromkeys(TALES, 12) if given.smoke else TALES)
    with sharing(device) as environment:
        done = side_by_side(BENCH, given, device, until, environment) and not missing
    say("all is there" if done else "not all is there yet: the same command goes on")


if __name__ == "__main__":
    main()
