"""Event files hold what metrics.jsonl holds; where TensorBoard is missing, one sentence says how to get it."""

import importlib.util
import sys

import pytest
import tiny_runs

import regard
from regard.errors import ConfigError


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="TensorBoard is not installed")
def test_event_files_hold_the_figures_of_every_step_and_a_resumed_run_goes_on_with_them(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tiny_runs.real(tmp_path, track="tensorboard").fit(until=5)
    tiny_runs.real(tmp_path, track="tensorboard").fit()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    found = {name: {event.step: event.value for event in events.Scalars(name)} for name in events.Tags()["scalars"]}
    lines = tiny_runs.lines(tmp_path)
    assert found["loss"] == pytest.approx({line["step"]: line["loss"] for line in lines}, rel=1e-6)
    assert found["rate"] == pytest.approx({line["step"]: line["rate"] for line in lines}, rel=1e-6)
    validated = {line["step"]: line["validation_loss"] for line in lines if "validation_loss" in line}
    assert found["validation/loss"] == pytest.approx(validated, rel=1e-6)


def test_where_tensorboard_is_missing_one_sentence_says_so_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match=r"needs TensorBoard, which is not installed; pip install 'regard\[track\]'"):
        regard.train("reverse", tmp_path / "run", changes=["training.track=tensorboard"])
    assert not (tmp_path / "run").exists()


def test_a_tracker_nobody_knows_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"track = 'wandb' cannot be used"):
        regard.train("reverse", tmp_path / "run", changes=["training.track=wandb"])
