"""The names people type: a change here is a change of the contract."""

import tomllib
from pathlib import Path

import pytest

import regard

PUBLIC = [
    "ALiBi",
    "Additive",
    "Batch",
    "Beam",
    "Block",
    "Causal",
    "ConfigError",
    "Cosine",
    "Dense",
    "Dilated",
    "Document",
    "Dot",
    "FileError",
    "General",
    "Global",
    "Greedy",
    "Hypothesis",
    "InputError",
    "Inputs",
    "KernelChoice",
    "Mask",
    "Model",
    "MultiHeadAttention",
    "Padded",
    "Padding",
    "Prefix",
    "RegardError",
    "RelativeBuckets",
    "Rotary",
    "Sample",
    "ScaledDot",
    "Similarity",
    "Stop",
    "Tokenizer",
    "Transformer",
    "TransformerConfig",
    "Window",
    "attend",
    "explain",
    "generate",
    "load",
    "train",
    "watch",
    "weights",
]


def test_the_public_names_are_these():
    assert regard.__all__ == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_the_thing_its_home_defines_and_is_documented(name):
    thing = getattr(regard, name)
    assert thing.__name__ == name
    assert thing.__module__.startswith("regard.")
    assert (thing.__doc__ or "").strip()


def test_a_star_import_gives_the_public_names():
    names: dict[str, object] = {}
    exec("from regard import *", names)
    assert set(PUBLIC) <= set(names)


def test_dir_names_what_there_is_to_use():
    assert set(dir(regard)) == {*PUBLIC, "__version__"}


def test_an_unknown_name_is_an_attribute_error_that_says_it():
    with pytest.raises(AttributeError, match="regard has no public name 'atend'"):
        _ = regard.atend
    assert not hasattr(regard, "utils")


def test_the_version_is_the_projects():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert regard.__version__ == project["version"]


def test_every_error_of_ours_is_a_regard_error_and_reads_as_problem_and_remedy():
    for kind, built_in in (
        (regard.InputError, ValueError),
        (regard.FileError, OSError),
        (regard.ConfigError, Exception),
    ):
        error = kind("two and three differ", "use two")
        assert isinstance(error, regard.RegardError)
        assert isinstance(error, built_in)
        assert str(error) == "two and three differ; use two"
