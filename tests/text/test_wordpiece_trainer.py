"""The trainer merges what a brute-force one merges, and the same words always make the same vocabulary."""

import hashlib
import math
import os
import random
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ConfigError
from regard.text.wordpiece import WordPieceTokenizer, cut_word
from regard.text.wordpiece_trainer import MOST_CHARACTERS, SCORES, learn_pieces

COUNTS = st.dictionaries(st.text(st.sampled_from("abcd"), min_size=1, max_size=7), st.integers(1, 9), min_size=1)


def brute_force(counts: dict[str, int], size: int, score: str) -> list[str]:
    """Everything counted anew for every merge."""
    segmented = {word: (word[0], *(f"##{letter}" for letter in word[1:])) for word in counts}
    pieces = sorted({word[0] for word in segmented.values()}) + sorted({p for w in segmented.values() for p in w[1:]})
    while len(pieces) < size:
        alone: Counter[str] = Counter()
        pairs: Counter[tuple[str, str]] = Counter()
        for word, parts in segmented.items():
            for part in parts:
                alone[part] += counts[word]
            for pair in pairwise(parts):
                pairs[pair] += counts[word]
        scores = {}
        for (left, right), count in pairs.items():
            ratio = count / (alone[left] * alone[right])
            if count >= 2:
                scores[left, right] = ratio if score == "ratio" else count * math.log(ratio * alone.total())
        if not scores:
            break
        best = max(scores.values())
        equal = [pair for pair, value in scores.items() if math.isclose(value, best, rel_tol=1e-12, abs_tol=0)]
        left, right = min(equal, key=lambda pair: (-pairs[pair], pair))
        made = left + right.removeprefix("##")
        for word, parts in segmented.items():
            out: list[str] = []
            rest = list(parts)
            while rest:
                if rest[:2] == [left, right]:
                    out.append(made)
                    rest = rest[2:]
                else:
                    out.append(rest.pop(0))
            segmented[word] = tuple(out)
        if made not in pieces:
            pieces.append(made)
    return pieces


@pytest.mark.parametrize("score", SCORES)
@given(counts=COUNTS, more=st.integers(0, 40))
def test_merges_are_those_of_brute_force(score, counts, more):
    size = len(brute_force(counts, 0, score)) + more
    assert learn_pieces(counts, size, score=score) == brute_force(counts, size, score)


@given(COUNTS)
def test_a_smaller_vocabulary_is_the_beginning_of_a_larger_one(counts):
    whole = learn_pieces(counts, 60)
    for size in range(len(brute_force(counts, 0, "ratio")), len(whole)):
        assert learn_pieces(counts, size) == whole[:size]


@given(COUNTS, st.randoms())
def test_the_order_of_the_words_decides_nothing(counts, shuffle):
    order = shuffle.sample(sorted(counts), len(counts))
    assert learn_pieces({word: counts[word] for word in order}, 50) == learn_pieces(counts, 50)


@given(COUNTS)
def test_every_word_can_be_cut_into_the_pieces_it_taught(counts):
    pieces = set(learn_pieces(counts, 50))
    for word in counts:
        cut = cut_word(word, pieces)
        assert "".join(piece.removeprefix("##") for piece in cut) == word


def test_a_frequent_pair_comes_before_a_rare_one_by_likelihood_and_after_it_by_ratio():
    counts = {"th": 90, "to": 10, "qz": 2, "oh": 7}
    assert learn_pieces(counts, 7, score="likelihood")[6:] == ["th"]
    assert learn_pieces(counts, 7, score="ratio")[6:] == ["qz"]


def test_an_unknown_score_is_refused():
    with pytest.raises(ConfigError, match=r"'ratoi' is not a score of WordPiece; did you mean 'ratio'"):
        learn_pieces({"ab": 2}, 9, score="ratoi")


def test_one_word_teaches_its_characters():
    assert learn_pieces({"hello": 1}, 99) == ["h", "##e", "##l", "##o"]
    assert learn_pieces({"hello": 2}, 99)[-1] == "hello"


def test_words_too_long_and_characters_too_rare_teach_nothing():
    letters = {chr(0x4E00 + at): 2 + at for at in range(MOST_CHARACTERS)}
    found = learn_pieces(letters | {"zq": 1, "a" * 101: 5}, 2000)
    # `a` is the most frequent and takes the place of the rarest, though nothing remains that has it
    assert set(found) == set(letters) - {chr(0x4E00)}


PROGRAM = (
    "import hashlib, random; from regard.text.wordpiece import WordPieceTokenizer as T; r = random.Random(7);"
    "texts = [' '.join(''.join(r.choices('etaoinshrdlu', k=r.randint(1, 9))) for _ in range(20)) for _ in range(30)];"
    "print(hashlib.sha256(T.train(texts, 200).to_json().encode()).hexdigest())"
)


def train() -> str:
    chance = random.Random(7)
    texts = [
        " ".join("".join(chance.choices("etaoinshrdlu", k=chance.randint(1, 9))) for _ in range(20)) for _ in range(30)
    ]
    return hashlib.sha256(WordPieceTokenizer.train(texts, 200).to_json().encode()).hexdigest()


def test_twenty_trainings_give_one_file():
    assert len({train() for _ in range(20)}) == 1


def test_other_processes_threads_and_hash_seeds_give_the_same_file():
    found = {train()}
    for seed, threads in (("1", "1"), ("2", "2"), ("3", "5")):
        environment = os.environ | {"PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
        )
        found.add(done.stdout.strip())
    assert len(found) == 1
