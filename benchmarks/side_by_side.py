"""Trainings side by side on one machine, each in a process of its own, until all are over or the time is up.

A benchmark says which there are (`Job`) and how they are told (`Bench`). The same command goes on where it stopped:
trainings from their states in OUT, and what is over from FOLDER/NAME-DEVICE.json, which is written after each. On a GPU
the processes compute through NVIDIA's Multi-Process Service where that starts, so that small kernels of one run beside
those of another. A training ends its step and saves its state before the call is over. What is trained is measured then
or, where the call has not the time for it, at the beginning of the next.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from regard.api.loading import load
from regard.api.model import Model
from regard.api.training import train
from regard.bench.timing import circumstances
from regard.compare.climb import Tally
from regard.devices import usable_device
from regard.errors import ConfigError
from regard.files import read_json, write_json
from regard.tasks.own_data import own_examples
from regard.tasks.recipe import Recipe, change_recipe, read_recipe
from regard.tasks.task import Measuring
from regard.training.interrupt import Interrupt, Stopped
from regard.training.journal import read_metrics
from regard.training.peak_memory import begin_peak, peak
from regard.training.reports import Report, Silent

Row = dict[str, Any]
LAST_SECONDS = 45.0
"""What a training needs at the end of a call to save its state; no training begins with less than twice that."""
MEASURING_SECONDS = 20.0
"""What measuring is believed to need until it is known."""
ALONE = {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "2", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
"""For processes beside many others; a pool of compilers would keep each from ending for up to 300 s."""
UNSETTLED = 3
"""The code of a process that ends before its job is over."""


@dataclass(frozen=True)
class Stage:
    """A part of a training: its recipe, and the accuracy in validation with which it is over."""

    name: str
    changes: tuple[str, ...] = ()
    enough: float | None = None
    recipe: str | Recipe | None = None
    """The job's if None."""


@dataclass(frozen=True)
class Job:
    """One training: what it is called, of which kind of figure it is one; its stages each begin in the one before."""

    group: str
    name: str
    what: str
    contestant: str
    recipe: str | Recipe
    stages: tuple[Stage, ...]
    seconds: float | None = None
    """Of training, after which it is measured as it is."""
    metric: str = "accuracy"
    """What its figure is."""
    examples: int | None = None
    """It is measured on at most so many; all of a file and 1,000 of a built-in corpus if None."""

    def read(self, number: int, before: Path | None = None) -> Recipe:
        """The recipe of a stage, which begins with a folder's network; ConfigError where no such model can be."""
        stage = self.stages[number]
        given = stage.recipe or self.recipe
        changes = list(stage.changes)
        recipe = read_recipe(given, changes) if isinstance(given, str) else change_recipe(given, changes)
        if before is None:
            return recipe
        tables = {name: table for name, table in tomllib.loads(recipe.toml()).items() if name != "tokenizer"}
        return Recipe.model_validate(tables | {"model": {"from": str(before.resolve())}})


Progress = Callable[[int, int], None]


def measured(job: Job, model: Model, recipe: Recipe, progress: Progress) -> Row:
    """The task's figures on held-out data of the recipe's own, and those of rules that learn nothing."""
    examples, data = own_examples(model.task, recipe, job.examples)
    metrics = model.evaluate(examples, Measuring(progress=progress))
    rules = model.task.baselines(examples)
    return {"data": data, "examples": len(examples), "metrics": metrics} | ({"baselines": rules} if rules else {})


@dataclass(frozen=True)
class Bench:
    """A benchmark of many trainings: the script that each process runs, and what is particular to it."""

    script: Path
    files: Mapping[str, str]
    """Of each group of jobs the name of the file that its figures are gathered in."""
    jobs: Callable[[argparse.Namespace], list[Job]]
    measured: Callable[[Job, Model, Recipe, Progress], Row] = measured
    published: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Of a group, who says what elsewhere."""


class Watch(Silent):
    """Stops a training that has learnt enough, had its time, or would not be saved before the call ends."""

    def __init__(self, enough: float | None, seconds: float | None, tally: Tally, interrupt: Interrupt, until: float):
        self.enough, self.seconds, self.tally = enough, seconds, tally
        self.interrupt, self.until = interrupt, until
        self.why: str | None = None
        self.said: list[str] = []

    def __call__(self, report: Report) -> None:
        """After every step."""
        self.tally(report)
        if self.enough is not None and (report.validation or {}).get("accuracy", -1.0) >= self.enough:
            self.why = "solved"
        elif self.seconds is not None and self.tally.seconds > self.seconds:
            self.why = "time"
        if self.why is not None or time.time() > self.until:
            self.interrupt.ask()

    def say(self, sentence: str) -> None:
        """Keep it: how many parameters learn, on how much."""
        self.said.append(sentence)


class OutOfTimeError(Exception):
    """Measuring would go on after the call's end."""


class Clock:
    """Ends measuring that the call has no time for; how long it needs is known to the next call."""

    def __init__(self, path: Path, until: float) -> None:
        self.path, self.until, self.begun = path, until, time.time()
        self.needs = read_json(path, "remove it")["seconds"] if path.is_file() else MEASURING_SECONDS

    def begin(self) -> None:
        """Raise OutOfTimeError where there is less time left than is needed."""
        if (left := self.until - time.time()) < self.needs:
            say(f"measuring needs {self.needs:.0f} s and {max(left, 0.0):.0f} s are left; it waits for the next call")
            raise OutOfTimeError

    def __call__(self, done: int, total: int) -> None:
        """So much is measured."""
        if time.time() > self.until:
            write_json(self.path, {"seconds": 1.2 * (time.time() - self.begun) * total / max(done, 1)})
            say(f"{done} of {total} were measured when the time was up; the next call begins anew with it")
            raise OutOfTimeError


def run(bench: Bench, job: Job, given: argparse.Namespace) -> bool:
    """Train in this process, further if it was begun; whether it is over and its figures are written."""
    folder = given.out / job.group / job.name
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
            found = learn(recipe, here, stage, left, given.until)
            if found is None:
                return False
            write_json(done, found)
        past.append(read_json(done, "remove it"))
        if past[-1]["over"] == "time":
            break
    clock = Clock(folder / "measuring.json", given.until + LAST_SECONDS)
    try:
        clock.begin()
        model = load(folder / job.stages[len(past) - 1].name)
        figures = bench.measured(job, model, job.read(len(job.stages) - 1), clock)
    except OutOfTimeError:
        return False
    held = [one["peak_bytes"] for one in past if one["peak_bytes"] is not None]
    figures |= {
        "metric": job.metric,
        "parameters": sum(one.numel() for one in model.module.parameters()),
        **{key: sum(one[key] or 0 for one in past) for key in ("steps", "tokens", "seconds")},
        "measuring_seconds": round(time.time() - clock.begun, 1),
        "over": past[-1]["over"],
        "peak_bytes": max(held, default=None),
        "at_once": given.at_once,
        "shared_by_mps": given.shared,
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
    spent = tally.totals(len(lines))
    return {"steps": len(lines), "over": watch.why, **spent, "validation": validation, "said": watch.said}


def results_file(bench: Bench, group: str, given: argparse.Namespace, device: str) -> Path:
    """Where the figures of a group are gathered: recall-h200.json."""
    machine = torch.cuda.get_device_name().split()[-1].lower() if device == "cuda" else "cpu"
    found: Path = given.results / f"{bench.files[group]}-{machine}{'-smoke' if given.smoke else ''}.json"
    return found


def known_rows(bench: Bench, group: str, given: argparse.Namespace, device: str) -> list[Row]:
    """What other calls have gathered, here or in benchmarks/results."""
    own = results_file(bench, group, given, device)
    places = (own, Path(__file__).parent / "results" / own.name)
    return next((read_json(path, "remove it")["rows"] for path in places if path.is_file()), [])


def gather(bench: Bench, group: str, given: argparse.Namespace, device: str) -> None:
    """All that is over, as one file of results."""
    rows = {key_of(row): row for row in known_rows(bench, group, given, device)}
    for job in (one for one in bench.jobs(given) if one.group == group):
        path = given.out / group / f"{job.name}.json"
        if path.is_file():
            found = read_json(path, "remove it")
            row = {key: value for key, value in found.items() if key != "group"} | figure(found)
            rows[key_of(row)] = row
            for who, said in bench.published.get(group, {}).items():
                published = {"what": job.what, "contestant": who, "figure": said}
                rows[key_of(published)] = published
    if rows:
        about = circumstances(device) | {"command": "python " + " ".join(sys.argv)}
        write_json(results_file(bench, group, given, device), {**about, "rows": list(rows.values())})


def figure(found: Row) -> Row:
    """What a row says in words."""
    if "refused" in found:
        return {"figure": f"refused: {found['refused']}"}
    held = "" if found["peak_bytes"] is None else f", {found['peak_bytes'] / 1e9:.2f} GB"
    took = f"{found['steps']:,} steps, {found['seconds']:.0f} s{held}"
    names = list(found["stages"])
    reached = f", not beyond {int(names[-1]):,} tokens" if len(names) < len(found["changes"]) else ""
    metric = found["metric"]
    value = found["metrics"][metric]
    if metric == "accuracy":
        return {"figure": f"{100 * value:.2f} % ({took}{reached})"}
    said = f"{value:.4f}" if metric in ("loss", "bits_per_byte", "perplexity") else f"{100 * value:.2f}"
    return {"figure": f"{metric} {said} ({took}{reached})"}


def key_of(row: Row) -> tuple[Any, ...]:
    """What a row is of; of a training its tokens are a figure, of growth they are the length."""
    return row["what"], row["contestant"], row.get("tokens") if "milliseconds" in row or "failed" in row else None


def say(sentence: str) -> None:
    """A line, at once."""
    print(f"{time.strftime('%H:%M:%S')} {sentence}", flush=True)


def side_by_side(
    bench: Bench, given: argparse.Namespace, device: str, until: float, environment: Mapping[str, str]
) -> bool:
    """So many at once, until all is there or the time is up."""
    every = bench.jobs(given)
    there = {key_of(row)[:2] for group in given.only for row in known_rows(bench, group, given, device)}
    wanted = [job for job in every if (job.what, job.contestant) not in there]
    missing = [job for job in wanted if not _result(job, given).is_file()]
    missing.sort(key=lambda job: not _trained(job, given))  # what need only be measured comes first
    say(f"{len(every) - len(missing)} of {len(every)} are there")
    for group in given.only:
        gather(bench, group, given, device)
    running: dict[str, tuple[Job, subprocess.Popen[bytes]]] = {}
    failed: list[str] = []
    spoken = time.time()
    while running or (missing and time.time() < until - 2 * LAST_SECONDS):
        while missing and len(running) < given.at_once and time.time() < until - 2 * LAST_SECONDS:
            job = missing.pop(0)
            running[f"{job.group} {job.name}"] = job, begin(bench, job, given, until - LAST_SECONDS, environment)
        time.sleep(1)
        for name, (job, process) in list(running.items()):
            if process.poll() is None and time.time() > until + LAST_SECONDS / 3:
                process.kill()
            elif process.poll() is not None:
                del running[name]
                gather(bench, job.group, given, device)
                path = _result(job, given)
                failed += [name] if process.returncode not in (0, UNSETTLED) else []
                say(f"{name}: {figure(read_json(path, ''))['figure'] if path.is_file() else ended(process.returncode)}")
                if process.returncode not in (0, UNSETTLED):
                    say(path.with_suffix(".log").read_text(errors="replace")[-600:])
        if time.time() > spoken + 30:
            spoken = time.time()
            say("; ".join(f"{name} {state(given.out / job.group / job.name)}" for name, (job, _) in running.items()))
    if failed:
        say(f"failed: {', '.join(failed)}; the reason is in OUT/GROUP/NAME.log")
    return not missing and all(_result(job, given).is_file() for job in wanted)


def _result(job: Job, given: argparse.Namespace) -> Path:
    found: Path = given.out / job.group / f"{job.name}.json"
    return found


def _trained(job: Job, given: argparse.Namespace) -> bool:
    last: Path = given.out / job.group / job.name / job.stages[-1].name / "over.json"
    return last.is_file()


def begin(
    bench: Bench, job: Job, given: argparse.Namespace, until: float, more: Mapping[str, str]
) -> "subprocess.Popen[bytes]":
    """The training in a process of its own, which is told what this one was; what it says in a file beside it."""
    log = _result(job, given).with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    told = ["--job", f"{job.group}/{job.name}", "--until", str(until), *(["--shared"] if more else [])]
    with log.open("ab") as said:
        command = [sys.executable, str(bench.script), *sys.argv[1:], *told]
        return subprocess.Popen(command, stdout=said, stderr=said, env={**os.environ, **ALONE, **more})


def ended(code: int) -> str:
    """How a process ended without figures."""
    return "goes on in the next call" if code == UNSETTLED else f"failed with code {code}"


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
    if already := os.environ.get("CUDA_MPS_PIPE_DIRECTORY"):
        say("one GPU is shared through the Multi-Process Service that is there")
        yield {"CUDA_MPS_PIPE_DIRECTORY": already}
        return
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


def parser_of(about: str | None, groups: Mapping[str, str]) -> argparse.ArgumentParser:
    """The options that every such benchmark has."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=groups, nargs="+", required=True, help="groups of trainings, in this order")
    parser.add_argument("--minutes", type=float, default=9.0, help="of this call")
    parser.add_argument("--out", type=Path, required=True, help="states of trainings")
    parser.add_argument("--results", type=Path, help="gathered figures; OUT if absent")
    parser.add_argument("--at-once", type=int, default=14, help="trainings side by side")
    parser.add_argument("--examples", type=int, help="measure on at most so many")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--shared", action="store_true", help=argparse.SUPPRESS)
    return parser


def settled(given: argparse.Namespace) -> str:
    """Folders are there; on which device it runs."""
    given.results = given.results or given.out
    for folder in (given.out, given.results):
        folder.mkdir(parents=True, exist_ok=True)
    return "cuda" if torch.cuda.is_available() else "cpu"


def run_asked(bench: Bench, given: argparse.Namespace) -> None:
    """In the process of one job: run it, and end."""
    (job,) = (one for one in bench.jobs(given) if f"{one.group}/{one.name}" == given.job)
    raise SystemExit(0 if run(bench, job, given) else UNSETTLED)
