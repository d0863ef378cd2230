"""A gigabyte in which every hundred megabytes bring millions of new words trains in less than two of memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import json, sys
from pathlib import Path
from regard.text.counting import read_texts
from regard.text.registry import KINDS
trained = KINDS[sys.argv[2]].train(read_texts([Path(sys.argv[1])]), 16_000)
status = Path("/proc/self/status").read_text().split()  # of getrusage the peak is at least that of the parent
print(json.dumps({"size": trained.size, "megabytes": int(status[status.index("VmHWM:") + 1]) / 1024}))
"""


def write_corpus(path: Path, megabytes: int) -> None:
    """Lines of common words, a third of the bytes being words that were never there before."""
    common = [
        f"{a}{b}{c}" for a in ("re", "un", "in", "the", "so") for b in ("lo", "ver", "ma") for c in ("st", "ing", "ed")
    ]
    with path.open("w", encoding="utf-8") as stream:
        written = number = 0
        while written < megabytes * 1_000_000:
            lines = []
            for _ in range(10_000):
                number += 1
                new = "".join(
                    "bdfgklmnprstvz"[digit] + "aeiou"[digit % 5] for digit in divmods(number * 48_271 % 2**31)
                )
                lines.append(f"{common[number % 45]} {new} {common[number * 7 % 45]} {common[number * 11 % 43]}\n")
            block = "".join(lines)
            written += len(block)
            stream.write(block)


def divmods(number: int) -> list[int]:
    found = []
    while number:
        number, digit = divmod(number, 14)
        found.append(digit)
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc")
@pytest.mark.parametrize("kind", ["bpe", "bpe_words", "wordpiece"])
def test_a_gigabyte_of_ever_new_words_takes_less_than_two(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    write_corpus(path, 1000)
    done = subprocess.run([sys.executable, "-c", CODE, path, kind], capture_output=True, check=True, env=os.environ)
    found = json.loads(done.stdout)
    print(found)
    assert found["megabytes"] < 2000
    assert found["size"] == 16_000
