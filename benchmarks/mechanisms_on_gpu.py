"""Every attention mechanism on one GPU: how it grows with length, and what it learns of far-apart things.

    python benchmarks/mechanisms_on_gpu.py --only growth  --minutes 9 --out OUT
    python benchmarks/mechanisms_on_gpu.py --only recall  --minutes 9 --out OUT
    python benchmarks/mechanisms_on_gpu.py --only listops --minutes 9 --out OUT
    python benchmarks/mechanisms_on_gpu.py --only imdb    --minutes 9 --out OUT --imdb FOLDER

growth    `regard bench attention` to 131,072 tokens, in both directions and causal
recall    at 512, 1,024 and 4,096 tokens, 2 layers × 128, at most --seconds of training each, and none beyond 99.9 %
listops   exact, Longformer, Linformer, Reformer and Performer by the recipe
imdb      by bytes: Longformer reading 4,096, and the same model cut at 512, 3 seeds; FOLDER is of benchmarks/imdb.py

The same command goes on where it stopped, until it says that all is there. --at-once trainings run side by side, each
in a process of its own that goes by the registry of mechanisms. OUT/GROUP/NAME.json is written when a training is over,
and OUT/GROUP.json, as benchmarks/results/*-h200.json are, after each of them.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import regard.blocks.config  # noqa: F401  (registers every mechanism)
from regard.api.loading import load
from regard.api.training import train
from regard.attention.mechanism import MECHANISMS
from regard.bench import growth
from regard.bench.timing import circumstances
from regard.compare.climb import Tally
from regard.devices import usable_device
from regard.errors import ConfigError
from regard.files import read_json, write_json
from regard.plugins import load_plugins
from regard.tasks.own_data import own_examples
from regard.tasks.recipe import Recipe, read_recipe
from regard.training.interrupt import Interrupt, Stopped
from regard.training.journal import read_metrics
from regard.training.peak_memory import begin_peak, peak
from regard.training.reports import Report, Silent

Row = dict[str, Any]
GROUPS = ("growth", "recall", "listops", "imdb")
LENGTHS = {512: 16384, 1024: 32768, 4096: 65536}
"""Of recall, with the tokens of a batch."""
SOLVED = 0.999
LISTOPS = ("exact", "longformer", "linformer", "reformer", "performer")
PUBLISHED = {"listops": {"Transformer, as published (Tay et al. 2020, table 1)": "36.37 %"}}
SEEDS = (0, 1, 2)
LAST_SECONDS = 45.0
"""What a training needs at the end of a call to save its state; no training begins with less than twice that."""


@dataclass(frozen=True)
class Job:
    """One training: what it is called, of which kind of figure it is one, and its recipe."""

    group: str
    name: str
    what: str
    contestant: str
    recipe: str
    changes: tuple[str, ...]
    seconds: float | None = None
    """Of training, after which it is measured as it is."""
    solved: float | None = None
    """The accuracy in validation with which it is over."""

    def read(self) -> Recipe:
        """Its recipe; ConfigError where the mechanism cannot be in such a model."""
        return read_recipe(self.recipe, list(self.changes))


def attention(name: str, tokens: int) -> str:
    """The change that chooses a mechanism; one that has to know the longest text is told it."""
    longest = f", max_tokens = {tokens}" if "max_tokens" in MECHANISMS[name].model_fields else ""
    return f'model.attention={{name = "{name}"{longest}}}'


def recall(seconds: float) -> Iterator[Job]:
    """Encoders where a mechanism looks in both directions, else decoders with exact attention's beside them."""
    causal_only = [name for name, shape in MECHANISMS.items() if not shape.abilities.bidirectional]
    kinds = {"encoder": growth.able(False), "decoder": ["exact", *causal_only] if causal_only else []}
    for length, batch in LENGTHS.items():
        for kind, names in kinds.items():
            for name in names:
                changes = (
                    *(attention(name, length), f"model.architecture={kind}", f"data.options.length={length}"),
                    *("data.options.held_out=200", f"training.batch_tokens={batch}", "training.compile=false"),
                    *("training.schedule=constant", "training.steps=20000", "training.evaluate_every=100"),
                    *("training.save_every=1000", "training.metric=accuracy", "training.metric_examples=50"),
                    "training.keep=1",
                )
                what = f"recall at {length:,} tokens, {kind}, 2 layers × 128"
                yield Job("recall", f"{length}-{kind}-{name}", what, name, "recall", changes, seconds, SOLVED)


def listops() -> Iterator[Job]:
    """By the recipe."""
    for name in (one for one in LISTOPS if one in MECHANISMS):
        changes = (attention(name, 2000), "training.compile=false", "training.keep=1")
        yield Job("listops", name, "ListOps, 4 layers × 128", name, "listops", changes)


def imdb(folder: Path | None) -> Iterator[Job]:
    """Two windows, three seeds."""
    if folder is None or "longformer" not in MECHANISMS:
        return
    for seed in SEEDS:
        for window in (4096, 512):
            changes = (
                *(attention("longformer", window), f"data.folder={folder.resolve()}", f"data.window={window}"),
                *(f"training.seed={seed}", "training.compile=false", "training.keep=1"),
            )
            what = f"IMDB by bytes, 4 layers × 128, seed {seed}"
            yield Job("imdb", f"{window}-seed{seed}", what, f"longformer, {window:,} bytes", "imdb", changes)


def jobs(given: argparse.Namespace) -> list[Job]:
    """Of the group that was asked for, in their order."""
    found = {"recall": recall(given.seconds), "listops": listops(), "imdb": imdb(given.imdb)}
    return list(found[given.only])


class Watch(Silent):
    """Stops a training that has learnt enough, had its time, or would not be saved before the call ends."""

    def __init__(self, job: Job, tally: Tally, interrupt: Interrupt, until: float) -> None:
        self.job, self.tally, self.interrupt, self.until = job, tally, interrupt, until
        self.why: str | None = None

    def __call__(self, report: Report) -> None:
        """After every step."""
        self.tally(report)
        if self.job.solved is not None and (report.validation or {}).get("accuracy", 0.0) >= self.job.solved:
            self.why = "solved"
        elif self.job.seconds is not None and self.tally.seconds > self.job.seconds:
            self.why = "time"
        if self.why is not None or time.time() > self.until:
            self.interrupt.ask()


def run(job: Job, out: Path, until: float, at_once: int) -> bool:
    """Train in this process, further if it was begun; whether it is over and its figures are written."""
    folder = out / job.group / job.name
    about = {"group": job.group, "what": job.what, "contestant": job.contestant, "changes": list(job.changes)}
    try:
        recipe = job.read()
    except ConfigError as error:
        write_json(folder.with_name(f"{job.name}.json"), {**about, "refused": str(error)})
        return True
    device, interrupt = usable_device(recipe.training.device), Interrupt()
    watch = Watch(job, Tally(Silent(), folder / "state" / "spent.json"), interrupt, until)
    known = begin_peak(device) is not None
    try:
        train(recipe, folder, resume=True, listener=watch, interrupt=interrupt)
        watch.why = watch.why or "steps"
    except Stopped:
        pass
    finally:
        watch.tally.keep(peak(device) if known else None)
    if watch.why is None:
        return False
    model, lines = load(folder), read_metrics(folder)
    examples, data = own_examples(model.task, recipe)
    found = {
        "data": data,
        "examples": len(examples),
        "metrics": model.evaluate(examples),
        "parameters": sum(one.numel() for one in model.module.parameters()),
        "steps": len(lines),
        "over": watch.why,
        **watch.tally.totals(len(lines)),
        "at_once": at_once,
        "validation": {int(one["step"]): one["validation_loss"] for one in lines if "validation_loss" in one},
        "recipe": recipe.tables(),
    }
    write_json(folder.with_name(f"{job.name}.json"), {**about, **found})
    return True


def gather(group: str, wanted: Sequence[Job], out: Path, device: str, command: str) -> None:
    """All that is over, as one file of results."""
    rows = []
    for job in wanted:
        path = out / group / f"{job.name}.json"
        if path.is_file():
            found = read_json(path, "remove it")
            rows.append({key: value for key, value in found.items() if key not in ("recipe", "group")} | figure(found))
    if group in PUBLISHED and rows:
        rows += [{"what": rows[0]["what"], "contestant": who, "figure": said} for who, said in PUBLISHED[group].items()]
    write_json(out / f"{group}.json", {**circumstances(device), "command": command, "rows": rows})


def figure(found: Row) -> Row:
    """What a row says in words."""
    if "refused" in found:
        return {"figure": f"refused: {found['refused']}"}
    held = "" if found["peak_bytes"] is None else f", {found['peak_bytes'] / 1e9:.2f} GB"
    took = f"{found['steps']:,} steps, {found['seconds']:.0f} s{held}"
    return {"figure": f"{100 * found['metrics']['accuracy']:.2f} % ({took})"}


def grow(out: Path, device: str, until: float) -> bool:
    """The lengths one after another, both kinds; whether all is there."""
    path = out / "growth.json"
    before = read_json(path, "remove it")["rows"] if path.is_file() else []
    kept = {_key(row): row for row in before if "tokens" in row}
    ended = []
    for causal in (False, True):
        row: Row = {}
        allowed = time.monotonic() + until - time.time()
        for row in growth.rows(device, causal=causal, known=list(kept.values()), until=allowed):
            kept[_key(row)] = row
            about = circumstances(device) | {"command": "python " + " ".join(sys.argv)}
            write_json(path, {**about, "rows": list(kept.values())})
            words = row.get("figure") or f"{row['milliseconds']:.2f} ms, {row.get('peak_bytes', 0) / 1e6:,.0f} MB"
            say(f"{row['what']}, {row['contestant']}, {row.get('tokens', 'in all')}: {words}")
        ended.append("time_exponent" in row)
    return all(ended)


def _key(row: Row) -> tuple[Any, ...]:
    return row["what"], row["contestant"], row.get("tokens")


def say(sentence: str) -> None:
    """A line, at once."""
    print(f"{time.strftime('%H:%M:%S')} {sentence}", flush=True)


def side_by_side(wanted: Sequence[Job], given: argparse.Namespace, device: str, until: float) -> bool:
    """So many at once, until all is there or the time is up."""
    group = given.only
    missing = [job for job in wanted if not (given.out / group / f"{job.name}.json").is_file()]
    say(f"{group}: {len(wanted) - len(missing)} of {len(wanted)} are there")
    running: dict[str, subprocess.Popen[bytes]] = {}
    failed: list[str] = []
    spoken = time.time()
    while running or (missing and time.time() < until - 2 * LAST_SECONDS):
        while missing and len(running) < given.at_once and time.time() < until - 2 * LAST_SECONDS:
            job = missing.pop(0)
            running[job.name] = begin(job, given, until - LAST_SECONDS)
        time.sleep(1)
        for name, process in list(running.items()):
            if process.poll() is None and time.time() > until + LAST_SECONDS:
                process.terminate()
            elif process.poll() is not None:
                del running[name]
                gather(group, wanted, given.out, device, "python " + " ".join(sys.argv))
                path = given.out / group / f"{name}.json"
                failed += [name] if process.returncode not in (0, 3) else []
                say(f"{name}: {figure(read_json(path, ''))['figure'] if path.is_file() else ended(process.returncode)}")
        if time.time() > spoken + 20:
            spoken = time.time()
            say("; ".join(f"{name} {state(given.out / group / name)}" for name in running))
    if failed:
        say(f"failed: {', '.join(failed)}; the reason is in OUT/{group}/NAME.log")
    return not missing and all((given.out / group / f"{job.name}.json").is_file() for job in wanted)


def begin(job: Job, given: argparse.Namespace, until: float) -> "subprocess.Popen[bytes]":
    """The training in a process of its own, what it says in a file beside it."""
    folder = given.out / job.group
    folder.mkdir(parents=True, exist_ok=True)
    told = ["--job", job.name, "--until", str(until)]
    same = ["--only", given.only, "--out", str(given.out), "--seconds", str(given.seconds)]
    also = ["--at-once", str(given.at_once), *(["--imdb", str(given.imdb)] if given.imdb else [])]
    with (folder / f"{job.name}.log").open("ab") as log:
        return subprocess.Popen([sys.executable, __file__, *told, *same, *also], stdout=log, stderr=log)


def ended(code: int) -> str:
    """How a process ended without figures."""
    return "goes on in the next call" if code == 3 else f"failed with code {code}"


def state(folder: Path) -> str:
    """How far a training is."""
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.is_file() else []
    measured = [json.loads(line) for line in lines if "validation_loss" in line]
    last = f", validation {measured[-1]['validation_loss']:.3f}" if measured else ""
    right = (
        f", {100 * measured[-1]['validation_accuracy']:.0f} %"
        if measured and "validation_accuracy" in measured[-1]
        else ""
    )
    return f"step {len(lines):,}{last}{right}"


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=GROUPS, required=True)
    parser.add_argument("--minutes", type=float, default=9.0, help="of this call")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--at-once", type=int, default=4, help="trainings side by side")
    parser.add_argument("--seconds", type=float, default=120.0, help="of training, for recall")
    parser.add_argument("--imdb", type=Path, help="the folder of train.gz and test.gz")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    load_plugins()
    if given.job is not None:
        (job,) = (one for one in jobs(given) if one.name == given.job)
        raise SystemExit(0 if run(job, given.out, given.until, given.at_once) else 3)
    until = time.time() + 60 * given.minutes
    device = usable_device("auto").type
    given.out.mkdir(parents=True, exist_ok=True)
    done = grow(given.out, device, until) if given.only == "growth" else side_by_side(jobs(given), given, device, until)
    say("all is there" if done else "not all is there yet: the same command goes on")


if __name__ == "__main__":
    main()
