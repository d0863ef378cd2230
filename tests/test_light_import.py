"""`import regard` and `regard --help` answer at once: neither loads a heavy library."""

import json
import subprocess
import sys

import pytest

HEAVY = {"torch", "matplotlib", "fastapi", "datasets", "tokenizers", "numpy"}

LAST_LINE = "import json, sys; print(); print(json.dumps(sorted(sys.modules)))"

IMPORT = f"import regard\n{LAST_LINE}"

HELP = f"""
import runpy, sys
sys.argv = ["regard", "--help"]
try:
    runpy.run_module("regard", run_name="__main__")
except SystemExit as end:
    assert not end.code, f"exit status {{end.code}}"
{LAST_LINE}
"""


def run(program: str) -> tuple[str, set[str]]:
    """What a fresh interpreter prints, and the modules it ends with."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    printed, _, modules = done.stdout.rstrip("\n").rpartition("\n")
    return printed, set(json.loads(modules))


@pytest.mark.parametrize("program", [IMPORT, HELP], ids=["import regard", "regard --help"])
def test_no_heavy_library_is_loaded(program):
    _, modules = run(program)
    assert "regard" in modules
    assert sorted(HEAVY & modules) == []


def test_help_is_printed():
    printed, modules = run(HELP)
    assert "Usage" in printed
    assert "regard.cli.app" in modules


def test_a_heavy_library_would_be_seen():
    _, modules = run(f"import numpy\n{LAST_LINE}")
    assert "numpy" in modules
