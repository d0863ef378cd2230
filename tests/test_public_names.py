"""The names people type: a change here is a change of the contract."""

import ast
import tomllib
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import regard

PUBLIC = [
    "ALiBi",
    "Abilities",
    "Additive",
    "AttentionState",
    "Batch",
    "Beam",
    "Block",
    "Causal",
    "ConfigError",
    "Contrastive",
    "Cosine",
    "Dense",
    "Dilated",
    "Document",
    "Dot",
    "EdgeKnockout",
    "FileError",
    "Filter",
    "General",
    "Generated",
    "Global",
    "Greedy",
    "HeadAblation",
    "Hypothesis",
    "InputError",
    "Inputs",
    "KernelChoice",
    "LayerContext",
    "Loss",
    "Mask",
    "MaskFunction",
    "Mechanism",
    "MechanismShape",
    "Model",
    "MultiHeadAttention",
    "MustContain",
    "MustNotContain",
    "Network",
    "NetworkConfig",
    "NetworkShape",
    "Padded",
    "Padding",
    "Prefix",
    "Projections",
    "PromptLookup",
    "Recipe",
    "RegardError",
    "RelativeBuckets",
    "Rotary",
    "Sample",
    "ScaledDot",
    "Score",
    "Similarity",
    "Slot",
    "Stepper",
    "Stop",
    "StreamPatch",
    "Task",
    "TaskTable",
    "Tokenizer",
    "Trainable",
    "Transformer",
    "TransformerConfig",
    "Window",
    "attend",
    "doctor",
    "generate",
    "load",
    "register_mechanism",
    "register_network",
    "register_similarity",
    "register_task",
    "tokenizer",
    "train",
    "vectors",
    "watch",
    "weights",
    "which_kernel",
]


def test_the_public_names_are_these():
    assert regard.__all__ == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_the_thing_its_home_defines_and_is_documented(name):
    thing = getattr(regard, name)
    module = isinstance(thing, ModuleType)
    assert (thing.__name__.removeprefix("regard.api.") if module else thing.__name__) == name
    assert (thing.__name__ if module else thing.__module__).startswith("regard.")
    assert (thing.__doc__ or "").strip()


def test_a_star_import_gives_the_public_names():
    names: dict[str, object] = {}
    exec("from regard import *", names)
    assert set(PUBLIC) <= set(names)


def test_dir_names_what_there_is_to_use():
    assert set(dir(regard)) == {*PUBLIC, "__version__"}


def test_type_checkers_are_told_the_same_names_from_the_same_homes():
    tree = ast.parse(Path(regard.__file__).read_text(encoding="utf-8"))
    [told] = [node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name)]
    imported = [(node.module, one.name, one.asname) for node in told.body for one in node.names]
    homes = [(home, name, name) for home, names in regard._HOMES.items() for name in names]
    assert sorted(imported) == sorted(homes)
    for home, name, _ in homes:
        assert getattr(import_module(home), name) is getattr(regard, name)


def test_an_unknown_name_is_an_attribute_error_that_says_it():
    with pytest.raises(AttributeError, match="regard has no public name 'atend'"):
        _ = regard.atend
    assert not hasattr(regard, "utils")


def test_the_version_is_the_projects():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert regard.__version__ == project["version"]


def test_every_error_is_a_regard_error_and_reads_as_problem_and_remedy():
    for kind, built_in in (
        (regard.InputError, ValueError),
        (regard.FileError, OSError),
        (regard.ConfigError, Exception),
    ):
        error = kind("two and three differ", "use two")
        assert isinstance(error, regard.RegardError)
        assert isinstance(error, built_in)
        assert str(error) == "two and three differ; use two"
