"""The numbers a forward pass is computed in: what `auto` chooses, and that it says so."""

import pytest
import torch
from tiny_runs import Ear, assert_same_run, real

from regard.training import precision
from regard.training.plan import CHANGEABLE, TrainingPlan
from regard.training.precision import autocast, choose_precision

CPU = torch.device("cpu")


@pytest.mark.parametrize(("native", "chosen"), [(True, "bfloat16"), (False, "float32")])
def test_auto_is_bfloat16_where_the_processor_computes_in_it(monkeypatch, native, chosen):
    monkeypatch.setattr(precision, "_cpu_has_bfloat16", lambda: native)
    found = choose_precision("auto", CPU)
    assert found.name == chosen
    assert "this CPU" in found.why
    with autocast(TrainingPlan(precision="auto"), CPU):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == getattr(torch, chosen)


@pytest.mark.parametrize("wish", ["float32", "bfloat16"])
@pytest.mark.parametrize("native", [True, False])
def test_what_the_recipe_names_is_what_is_used(monkeypatch, wish, native):
    monkeypatch.setattr(precision, "_cpu_has_bfloat16", lambda: native)
    assert choose_precision(wish, CPU).name == wish


@pytest.mark.skipif(not hasattr(torch.cpu, "_is_avx512_bf16_supported"), reason="this torch cannot say")
def test_the_processor_is_asked_for_what_linux_lists():
    try:
        flags = open("/proc/cpuinfo").read().split()  # noqa: SIM115
    except OSError:
        pytest.skip("no /proc/cpuinfo")
    assert precision._cpu_has_bfloat16() == bool({"avx512_bf16", "amx_tile"} & set(flags))


@pytest.mark.parametrize(("native", "chosen"), [(True, "bfloat16"), (False, "float32")])
def test_a_run_says_what_auto_chose_and_equals_one_that_asked_for_it(tmp_path, monkeypatch, native, chosen):
    monkeypatch.setattr(precision, "_cpu_has_bfloat16", lambda: native)
    ear = Ear()
    real(tmp_path / "auto", precision="auto", listener=ear).fit()
    assert ear.said == [f"computing in {chosen}: {choose_precision('auto', CPU).why}"]
    real(tmp_path / "named", precision=chosen).fit()
    assert_same_run(tmp_path / "auto", tmp_path / "named")


def test_what_may_be_changed_on_resume_is_in_the_plan_and_what_the_state_depends_on_may_not():
    keys = {f"training.{key}" for key in TrainingPlan.model_fields}
    assert keys > CHANGEABLE
    depended_on = {"batch_tokens", "accumulate", "seed", "average", "metric", "metric_examples"}
    depended_on |= {"optimizer", "layer_decay", "rate_factors", "freeze"}
    assert keys - CHANGEABLE == {f"training.{key}" for key in depended_on}
