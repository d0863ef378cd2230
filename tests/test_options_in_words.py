"""Errors name arguments of Python; the command line says its own options in their place."""

import ast
import re

import pytest

from regard.cli.output import as_options
from regard.errors import changing
from test_architecture import PACKAGE, sources

OTHERS = {"--version", "--short", "--force-reinstall"}
"""Options of other programs: llama2.c's, git's, pip's."""
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def test_below_the_command_line_no_message_speaks_of_an_option():
    found = []
    for path, tree in sources(PACKAGE):
        if path.parts[0] in ("cli", "__main__.py"):
            continue
        prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # what documents a thing
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
                found += [f"{path}:{node.lineno}: {one}" for one in set(OPTION.findall(node.value)) - OTHERS]
    assert found == []


@pytest.mark.parametrize(
    ("python", "command"),
    [
        ("choose another `out`", "choose another --out"),
        ("add `resume=True` to go on", "add --resume to go on"),
        (f"use {changing('model.width', 5)}, or another", "use --set model.width=5, or another"),
        (
            f"go on with `resume=True`, {changing('training.learning_rate', 0.5)}, or train anew",
            "go on with --resume --set training.learning_rate=0.5, or train anew",
        ),
        ("use `regard.Greedy()` or `seen.weights`", "use `regard.Greedy()` or `seen.weights`"),
    ],
)
def test_an_argument_becomes_the_option_that_says_it(python, command):
    assert as_options(python) == command
