"""What only `mixture` and `python` promise; the laws of every corpus of pairs are in test_synthetic.py."""

import ast
import sysconfig
from pathlib import Path

import pytest

from regard.data.corpus import Split, built_in, corpus, examples_of
from regard.data.mixture import Mixture
from regard.data.python import Python
from regard.errors import ConfigError, InputError
from regard.tasks.task import held_out

SPLITS: tuple[Split, ...] = ("train", "valid", "test")


def test_parts_come_in_turn_as_often_as_they_are_named():
    mixed = corpus("mixture", {"parts": ["copy:2", "dates"], "seed": 3})
    copy, dates = (corpus(name, {"seed": 3}) for name in ("copy", "dates"))
    for split in SPLITS:
        found = [mixed.example(split, index) for index in range(6)]
        assert found[2::3] == [dates.example(split, index) for index in range(2)]
        assert [found[index] for index in (0, 1, 3, 4)] == [copy.example(split, index) for index in range(4)]
    assert [mixed.part(pair.source) for pair in found[:3]] == ["copy", "copy", "dates"]


def test_a_part_has_options_of_its_own():
    mixed = corpus("mixture", {"parts": ["dates", "tales length=60 shortest=40:2"], "seed": 3})
    tales = corpus("tales", {"length": 60, "shortest": 40, "seed": 3})
    found = [mixed.example("train", index) for index in range(6)]
    assert [found[index] for index in (1, 2, 4, 5)] == [tales.example("train", index) for index in range(4)]


def test_a_mixture_calls_its_parts_what_they_call_themselves():
    mixed = Mixture(("dates", "tales:3"))
    found = [mixed.part(mixed.example("test", index).source) for index in range(8)]
    assert found == ["dates", "question", "summary", "mood"] * 2
    with pytest.raises(InputError, match=r"en: fr: de: .*question: summary: mood:"):
        mixed.check("tell: me")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"parts": []}, "a mixture of no corpora"),
        ({"parts": ["mixture"]}, "'mixture', which is no corpus to mix"),
        ({"parts": ["dats"]}, "did you mean 'dates'"),
        ({"parts": ["dates:0"]}, "say how often from 1 to 100"),
        ({"parts": ["tales shortest"]}, "'shortest' is no option"),
        ({"parts": ["tales shortst=40"]}, "did you mean 'shortest'"),
        ({"held_out": 0}, "held_out is 0"),
    ],
)
def test_a_mixture_that_cannot_be_is_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        corpus("mixture", options)


def test_what_a_corpus_does_not_have_is_said_with_those_that_do():
    with pytest.raises(ConfigError, match=r"'dates' has pairs of texts, .*no questions about .*use corpus tales"):
        examples_of("dates", {}, "questions")
    with pytest.raises(ConfigError, match="'python' has running text, and no pairs of texts"):
        corpus("python", {})


FEW = ("json", "html", "wsgiref", "venv", "logging")


def test_python_holds_out_whole_modules_of_the_standard_library():
    one = Python(held_out=20_000, only=FEW)
    modules = [set(one.modules(split)) for split in SPLITS]
    assert set().union(*modules) == set(FEW)
    assert sum(map(len, modules)) == len(FEW)
    library = Path(sysconfig.get_paths()["stdlib"])
    expected = {path.read_text(encoding="utf-8") for name in FEW for path in (library / name).glob("*.py")}
    found = [document.text for split in SPLITS for document in held_out(one, split, None)]
    assert set(found) == {text for text in expected if text.strip()}
    assert len(found) == len(set(found))
    for text in found:
        ast.parse(text)
    for split in ("valid", "test"):
        assert sum(len(document.text) for document in held_out(one, split, None)) >= 20_000


def test_another_seed_holds_out_other_modules():
    assert len({Python(held_out=9_000, only=FEW, seed=seed).modules("test") for seed in range(6)}) > 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"held_out": 0}, "held_out is 0"),
        ({"only": ["jsom"]}, "'jsom', which is no module"),
        ({"only": ["json"]}, "leave none for"),
    ],
)
def test_a_python_that_cannot_be_is_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        built_in("python", options).of_kind("documents").size("train")
