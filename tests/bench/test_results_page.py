"""The page of benchmarks is what the committed results give, row by row."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def build():
    spec = importlib.util.spec_from_file_location("build_docs", ROOT / "docs" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_results_give(build):
    remedy = "docs/benchmarks.md is older than benchmarks/results: run `make docs`"
    assert build.BENCHMARKS.read_text(encoding="utf-8") == build.benchmarks(build.RESULTS), remedy


def test_the_page_of_mechanisms_is_what_the_results_give(build):
    remedy = "docs/mechanisms.md is older than benchmarks/results: run `make docs`"
    page = build.mechanisms_page(build.RESULTS)
    assert build.MECHANISMS.read_text(encoding="utf-8") == page, remedy
    for picture in re.findall(r"\]\((.*?)\)", page):
        assert (build.MECHANISMS.parent / picture).is_file()


def test_the_page_of_keys_is_what_the_classes_say(build):
    assert build.KEYS.read_text(encoding="utf-8") == build.keys_page(), "docs/keys.md is out of date: run `make docs`"


def test_the_page_of_laws_is_what_the_table_says(build):
    laws = build.DOCTOR.read_text(encoding="utf-8")
    assert laws == build.doctor_page(laws), "docs/doctor.md is out of date: run `make docs`"


def test_the_readmes_headlines_are_what_the_results_give(build):
    text = build.README.read_text(encoding="utf-8")
    assert text == build.readme(text, build.headlines(build.RESULTS)), "README.md is out of date: run `make docs`"
    assert text.count(build.headlines(build.RESULTS)) == 1
    assert len(build.HEADLINES) <= 8


def test_every_row_of_every_result_is_on_the_page_with_its_command_and_versions(build, tmp_path):
    rows = [
        {"what": "a", "contestant": "regard", "precision": "bfloat16", "tokens_per_second": 2345.6, "faster": True},
        {"what": "b", "contestant": "peer", "milliseconds": 3.14159, "kernel": "sdpa"},
        {"what": "c", "contestant": "regard", "extra_peak_bytes": 2 * 2**20},
    ]
    found = {"command": "regard bench x --out y.json", "device": "CPU, 2 threads", "torch": "2.13"}
    alone = {"what": "d", "contestant": "regard", "figure": "41.90"}
    (tmp_path / "x.json").write_text(json.dumps({**found, "rows": [{**row, "ratio": 1.25} for row in rows] + [alone]}))
    page = build.benchmarks(tmp_path)
    for line in (
        "## `regard bench x`",
        "CPU, 2 threads; torch 2.13",
        "| a | regard, bfloat16 \\* | 2,346 tokens/s | 1.25 |",
        "| b | peer, sdpa | 3.14 ms | 1.25 |",
        "| c | regard | 2 MiB more at the peak | 1.25 |",
        "| d | regard | 41.90 |  |",
    ):
        assert line in page.splitlines()
