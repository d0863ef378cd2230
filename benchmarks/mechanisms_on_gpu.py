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
all of it in tiny sizes, to see that it runs: those figures mean nothing.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import regard.blocks.config  # noqa: F401  (registers every mechanism)
from regard.api.loading import load
from regard.api.training import train
from regard.attention import flex
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
LAST_SECONDS = 45.0
"""What a training needs at the end of a call to save its state; no training begins with less than twice that."""
ALONE = {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "2", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
"""For processes beside many others; a pool of compilers would keep each from ending for up to 300 s."""
SMOKE = ("model.width=16", "model.layers=1", "model.heads=2", "training.warmup=1", "training.evaluate_every=2")


@dataclass(frozen=True)
class Stage:
    """A part of a training: its recipe, and the accuracy in validation with which it is over."""

    name: str
    changes: tuple[str, ...]
    enough: float | None = None


@dataclass(frozen=True)
class Job:
    """One training: what it is called, of which kind of figure it is one; its stages each begin in the one before."""

    group: str
    name: str
    what: str
    contestant: str
    recipe: str
    stages: tuple[Stage, ...]
    seconds: float | None = None
    """Of training, after which it is measured as it is."""

    def read(self, number: int, before: Path | None = None) -> Recipe:
        """The recipe of a stage, which begins with a folder's network; ConfigError where no such model can be."""
        recipe = read_recipe(self.recipe, list(self.stages[number].changes))
        if before is None:
            return recipe
        tables = {name: table for name, table in tomllib.loads(recipe.toml()).items() if name != "tokenizer"}
        return Recipe.model_validate(tables | {"model": {"from": str(before.resolve())}})


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
            yield Job("imdb", name, what, contestant, "imdb", (Stage("", changes),))


def jobs(given: argparse.Namespace) -> list[Job]:
    """Of the groups that were asked for, in their order."""
    makers = {"recall": recall, "listops": listops, "imdb": imdb}
    found = (job for group in given.only for job in makers[group](given))
    return [job for job in found if given.mechanisms is None or job.contestant.split(",")[0] in given.mechanisms]


class Watch(Silent):
    """Stops a training that has learnt enough, had its time, or would not be saved before the call ends."""

    def __init__(self, enough: float | None, seconds: float | None, tally: Tally, interrupt: Interrupt, until: float):
        self.enough, self.seconds, self.tally = enough, seconds, tally
        self.interrupt, self.until = interrupt, until
        self.why: str | None = None

    def __call__(self, report: Report) -> None:
        """After every step."""
        self.tally(report)
        if self.enough is not None and (report.validation or {}).get("accuracy", -1.0) >= self.enough:
            self.why = "solved"
        elif self.seconds is not None and self.tally.seconds > self.seconds:
            self.why = "time"
        if self.why is not None or time.time() > self.until:
            self.interrupt.ask()


def run(job: Job, out: Path, until: float, at_once: int, shared: bool) -> bool:
    """Train in this process, further if it was begun; whether it is over and its figures are written."""
    folder = out / job.group / job.name
    result = folder.with_name(f"{job.name}.json")
    about = {"group": job.group, "name": job.name, "what": job.what, "contestant": job.contestant}
    try:
        job.read(0)
    except ConfigError as error:
        write_json(result, {**about, "refused": str(error)})
        return True
    past: list[Row] = []
    for number, stage in enumerate(job.stages):
        here = folder / stage.name
        done = here / "over.json"
        left = None if job.seconds is None else job.seconds - sum(one["seconds"] or 0.0 for one in past)
        if not done.is_file():
            recipe = job.read(number, folder / job.stages[number - 1].name if number else None)
            found = learn(recipe, here, stage, left, until)
            if found is None:
                return False
            write_json(done, found)
        past.append(read_json(done, "remove it"))
        if past[-1]["over"] == "time":
            break
    whole = job.read(len(job.stages) - 1)
    model = load(folder / job.stages[len(past) - 1].name)
    examples, data = own_examples(model.task, whole)
    held = [one["peak_bytes"] for one in past if one["peak_bytes"] is not None]
    figures = {
        "data": data,
        "examples": len(examples),
        "metrics": model.evaluate(examples),
        "parameters": sum(one.numel() for one in model.module.parameters()),
        **{key: sum(one[key] or 0 for one in past) for key in ("steps", "tokens", "seconds")},
        "over": past[-1]["over"],
        "peak_bytes": max(held, default=None),
        "at_once": at_once,
        "shared_by_mps": shared,
        "stages": {stage.name or "all": one for stage, one in zip(job.stages, past, strict=False)},
        "changes": [list(stage.changes) for stage in job.stages],
    }
    write_json(result, {**about, **figures})
    return True


def learn(recipe: Recipe, folder: Path, stage: Stage, seconds: float | None, until: float) -> Row | None:
    """One stage, as far as it came; None if it goes on in another call."""
    device, interrupt = usable_device(recipe.training.device), Interrupt()
    tally = Tally(Silent(), folder / "state" / "spent.json")
    watch = Watch(stage.enough, seconds, tally, interrupt, until)
    known = begin_peak(device) is not None
    try:
        train(recipe, folder, resume=True, listener=watch, interrupt=interrupt)
        watch.why = watch.why or "steps"
    except Stopped:
        pass
    finally:
        tally.keep(peak(device) if known else None)
    if watch.why is None:
        return None
    lines = read_metrics(folder)
    validation = {int(one["step"]): one["validation_loss"] for one in lines if "validation_loss" in one}
    return {"steps": len(lines), "over": watch.why, **tally.totals(len(lines)), "validation": validation}


def results_file(group: str, given: argparse.Namespace, device: str) -> Path:
    """Where the figures of a group are gathered: recall-h200.json."""
    machine = torch.cuda.get_device_name().split()[-1].lower() if device == "cuda" else "cpu"
    return given.results / f"{GROUPS[group]}-{machine}{'-smoke' if given.smoke else ''}.json"


def known_rows(group: str, given: argparse.Namespace, device: str) -> list[Row]:
    """What other calls have gathered, here or in benchmarks/results."""
    own = results_file(group, given, device)
    places = (own, Path(__file__).parent / "results" / own.name)
    return next((read_json(path, "remove it")["rows"] for path in places if path.is_file()), [])


def gather(group: str, given: argparse.Namespace, device: str) -> None:
    """All that is over, as one file of results."""
    rows = {_key(row): row for row in known_rows(group, given, device)}
    for job in (one for one in jobs(given) if one.group == group):
        path = given.out / group / f"{job.name}.json"
        if path.is_file():
            found = read_json(path, "remove it")
            row = {key: value for key, value in found.items() if key != "group"} | figure(found)
            rows[_key(row)] = row
            for who, said in PUBLISHED.get(group, {}).items():
                published = {"what": job.what, "contestant": who, "figure": said}
                rows[_key(published)] = published
    if rows:
        about = circumstances(device) | {"command": "python " + " ".join(sys.argv)}
        write_json(results_file(group, given, device), {**about, "rows": list(rows.values())})


def figure(found: Row) -> Row:
    """What a row says in words."""
    if "refused" in found:
        return {"figure": f"refused: {found['refused']}"}
    held = "" if found["peak_bytes"] is None else f", {found['peak_bytes'] / 1e9:.2f} GB"
    took = f"{found['steps']:,} steps, {found['seconds']:.0f} s{held}"
    names = list(found["stages"])
    reached = f", not beyond {int(names[-1]):,} tokens" if len(names) < len(found["changes"]) else ""
    return {"figure": f"{100 * found['metrics']['accuracy']:.2f} % ({took}{reached})"}


def grow(given: argparse.Namespace, device: str, until: float) -> bool:
    """The lengths one after another, both kinds; whether all is there."""
    path = results_file("growth", given, device)
    kept = {_key(row): row for row in known_rows("growth", given, device) if "tokens" in row}
    chosen = None if given.mechanisms is None else [one for one in given.mechanisms if one in MECHANISMS]
    lengths = (256, 512, 1024) if given.smoke else None
    ended = []
    for causal in (False, True):
        row: Row = {}
        allowed = time.monotonic() + until - time.time()
        options = {"causal": causal, "mechanisms": chosen, "known": list(kept.values()), "until": allowed}
        for row in growth.rows(device, lengths, **options, together=device == "cuda"):
            kept[_key(row)] = row
            about = circumstances(device) | {"command": "python " + " ".join(sys.argv)}
            write_json(path, {**about, "rows": list(kept.values())})
            words = row.get("figure") or f"{row['milliseconds']:.2f} ms, {row.get('peak_bytes', 0) / 1e6:,.0f} MB"
            say(f"{row['what']}, {row['contestant']}, {row.get('tokens', 'in all')}: {words}")
        ended.append("time_exponent" in row)
    return all(ended)


def _key(row: Row) -> tuple[Any, ...]:
    """What a row is of; of a training its tokens are a figure, of growth they are the length."""
    return row["what"], row["contestant"], row.get("tokens") if "milliseconds" in row or "failed" in row else None


def say(sentence: str) -> None:
    """A line, at once."""
    print(f"{time.strftime('%H:%M:%S')} {sentence}", flush=True)


def side_by_side(given: argparse.Namespace, device: str, until: float, environment: Mapping[str, str]) -> bool:
    """So many at once, until all is there or the time is up."""
    there = {_key(row)[:2] for group in given.only for row in known_rows(group, given, device)}
    wanted = [job for job in jobs(given) if (job.what, job.contestant) not in there]
    missing = [job for job in wanted if not (given.out / job.group / f"{job.name}.json").is_file()]
    say(f"{len(jobs(given)) - len(missing)} of {len(jobs(given))} are there")
    for group in given.only:
        gather(group, given, device)
    running: dict[str, tuple[Job, subprocess.Popen[bytes]]] = {}
    failed: list[str] = []
    spoken = time.time()
    while running or (missing and time.time() < until - 2 * LAST_SECONDS):
        while missing and len(running) < given.at_once and time.time() < until - 2 * LAST_SECONDS:
            job = missing.pop(0)
            running[f"{job.group} {job.name}"] = job, begin(job, given, until - LAST_SECONDS, environment)
        time.sleep(1)
        for name, (job, process) in list(running.items()):
            if process.poll() is None and time.time() > until + LAST_SECONDS / 3:
                process.kill()
            elif process.poll() is not None:
                del running[name]
                gather(job.group, given, device)
                path = given.out / job.group / f"{job.name}.json"
                failed += [name] if process.returncode not in (0, 3) else []
                say(f"{name}: {figure(read_json(path, ''))['figure'] if path.is_file() else ended(process.returncode)}")
                if process.returncode not in (0, 3):
                    say(path.with_suffix(".log").read_text(errors="replace")[-600:])
        if time.time() > spoken + 30:
            spoken = time.time()
            say("; ".join(f"{name} {state(given.out / job.group / job.name)}" for name, (job, _) in running.items()))
    if failed:
        say(f"failed: {', '.join(failed)}; the reason is in OUT/GROUP/NAME.log")
    return not missing and all((given.out / job.group / f"{job.name}.json").is_file() for job in wanted)


def begin(job: Job, given: argparse.Namespace, until: float, more: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """The training in a process of its own, what it says in a file beside it."""
    folder = given.out / job.group
    folder.mkdir(parents=True, exist_ok=True)
    told = ["--job", job.name, "--until", str(until), "--only", job.group, "--out", str(given.out)]
    same = ["--seconds", str(given.seconds), "--at-once", str(given.at_once), *(["--smoke"] if given.smoke else [])]
    also = [*(["--imdb", str(given.imdb)] if given.imdb else []), *(["--shared"] if more else [])]
    also += ["--static"] if given.static else []
    with (folder / f"{job.name}.log").open("ab") as log:
        command = [sys.executable, __file__, *told, *same, *also]
        return subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **ALONE, **more})


def ended(code: int) -> str:
    """How a process ended without figures."""
    return "goes on in the next call" if code == 3 else f"failed with code {code}"


def state(folder: Path) -> str:
    """How far a training is."""
    paths = sorted(folder.glob("**/metrics.jsonl"), key=lambda path: path.stat().st_mtime)
    lines = paths[-1].read_text().splitlines() if paths else []
    measured = [json.loads(line) for line in lines if "validation_loss" in line]
    last = f", validation {measured[-1]['validation_loss']:.3f}" if measured else ""
    right = measured[-1].get("validation_accuracy") if measured else None
    where = f"{paths[-1].parent.name}: " if paths and paths[-1].parent != folder else ""
    return f"{where}step {len(lines):,}{last}" + ("" if right is None else f", {100 * right:.0f} %")


@contextmanager
def sharing(device: str) -> Iterator[dict[str, str]]:
    """NVIDIA's Multi-Process Service, where it is installed and two processes compute through it at once."""
    control = shutil.which("nvidia-cuda-mps-control")
    if device != "cuda" or control is None:
        say("one GPU is shared by turns: there is no nvidia-cuda-mps-control" if device == "cuda" else "on a CPU")
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="mps") as folder:
        places = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        environment = {**os.environ, **places}
        works = False
        try:
            subprocess.run([control, "-d"], env=environment, check=True, timeout=20, capture_output=True)
            probe = [sys.executable, "-c", "import torch; print(torch.ones(512, device='cuda').cumsum(0).sum().item())"]
            both = [subprocess.Popen(probe, env=environment, stdout=subprocess.DEVNULL) for _ in range(2)]
            works = [one.wait(timeout=90) for one in both] == [0, 0]
        except (OSError, subprocess.SubprocessError) as error:
            say(f"the Multi-Process Service does not start: {error}")
        say(f"one GPU is shared {'through the Multi-Process Service' if works else 'by turns'}")
        try:
            yield places if works else {}
        finally:
            with suppress(OSError, subprocess.SubprocessError):
                subprocess.run(
                    [control], input=b"quit\n", env=environment, check=False, timeout=20, capture_output=True
                )


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=GROUPS, nargs="+", required=True, help="growth is measured by itself")
    parser.add_argument("--minutes", type=float, default=9.0, help="of this call")
    parser.add_argument("--out", type=Path, required=True, help="states of trainings")
    parser.add_argument("--results", type=Path, help="gathered figures; OUT if absent")
    parser.add_argument("--at-once", type=int, default=14, help="trainings side by side")
    parser.add_argument("--seconds", type=float, default=120.0, help="of training, for recall")
    parser.add_argument("--imdb", type=Path, help="the folder of train.gz and test.gz")
    parser.add_argument("--mechanisms", nargs="+", help="these alone")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument(
        "--static", action="store_true", help="FlexAttention compiled for each shape, should that for any shape fail"
    )
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--shared", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    load_plugins()
    if given.static:
        flex.OPTIONS["dynamic"] = False
    if given.job is not None:
        (job,) = (one for one in jobs(given) if one.name == given.job)
        raise SystemExit(0 if run(job, given.out, given.until, given.at_once, given.shared) else 3)
    if "growth" in given.only and len(given.only) > 1:
        raise SystemExit("growth is measured by itself: ask for it alone")
    until, device = time.time() + 60 * given.minutes, "cuda" if torch.cuda.is_available() else "cpu"
    given.results = given.results or given.out
    for folder in (given.out, given.results):
        folder.mkdir(parents=True, exist_ok=True)
    if "growth" in given.only:
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
        done = grow(given, device, until)
    else:
        with sharing(device) as environment:
            done = side_by_side(given, device, until, environment)
    say("all is there" if done else "not all is there yet: the same command goes on")


if __name__ == "__main__":
    main()
