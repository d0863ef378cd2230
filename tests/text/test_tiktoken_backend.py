"""tiktoken under our own files: the ids of `tokenizers`, or no tiktoken."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken
from tokenizers import Tokenizer as Engine
from tokenizers.pre_tokenizers import ByteLevel

from regard.text import tiktoken_backend
from regard.text.bytelevel import byte_words, pieces
from regard.text.tiktoken_backend import encode_all, fast_encoder
from regard.text.tokenizer import Tokenizer

TEXTS = [
    "the rose by the river bank, aaaa aaaaaaa",
    "naïve 日本語日本 😀😀  \n\n\n don't 2021",
    "abc abc bca ababab",
] * 3
TOKENIZER = Tokenizer.train(TEXTS, 331)
mixed = st.one_of(
    st.text(),
    st.text("abct ' \n\té日😀1!"),
    st.text("a! \n\x85\xa0\u3000\u2028\x1c\u200b"),
    st.text("ab").map(lambda text: text * 5),
)


def engine_of(record: dict) -> Engine:
    engine = Engine.from_str(json.dumps(record))
    engine.encode_special_tokens = True
    return engine


def record() -> dict:
    return json.loads(TOKENIZER.to_json())


ENGINE = engine_of(record())
FAST = fast_encoder(ENGINE, record())


@given(mixed)
def test_ids_are_those_of_tokenizers(text: str) -> None:
    assert FAST is not None
    assert FAST(text) == ENGINE.encode(text, add_special_tokens=False).ids == TOKENIZER.encode(text)


@given(st.lists(st.text("abc", min_size=1, max_size=7), min_size=1), st.integers(0, 61), mixed)
def test_ids_are_those_of_tokenizers_whatever_was_learnt(words: list[str], more: int, text: str) -> None:
    tokenizer = Tokenizer.train([" ".join(words)] * 2, 260 + more)
    engine = engine_of(json.loads(tokenizer.to_json()))
    encode = fast_encoder(engine, json.loads(tokenizer.to_json()))
    assert encode is not None
    for one in (text, *words):
        assert encode(one) == engine.encode(one, add_special_tokens=False).ids


@given(st.lists(mixed, max_size=7))
def test_a_batch_in_threads_is_each_text_by_itself(texts: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiktoken_backend, "_WORTH_A_THREAD", 0)
        assert FAST is not None
        assert encode_all(FAST, texts) == [FAST(text) for text in texts]


@given(st.lists(st.one_of(mixed, st.text("a|\uffff\ufffe \n")), min_size=1, max_size=11))
def test_texts_encoded_together_are_each_text_by_itself_whatever_they_hold(texts: list[str]) -> None:
    assert FAST is not None
    assert FAST.together(texts) == [ENGINE.encode(text, add_special_tokens=False).ids for text in texts]


def test_a_long_text_among_short_ones_changes_nothing() -> None:
    texts = [
        "the rose ",
        "",
        "naïve " * (tiktoken_backend.SHORT // 5),
        " by the river",
        tiktoken_backend.SEPARATOR,
        "\n\n",
    ]
    assert TOKENIZER.encode_batch(texts) == [ENGINE.encode(text, add_special_tokens=False).ids for text in texts]


@pytest.mark.parametrize("blank", [" ", "\n", "\u3000"])
@pytest.mark.parametrize("after", ["", "x", " x", "\nx y"])
def test_a_long_run_of_blanks_is_one_word_without_the_pattern(blank: str, after: str, monkeypatch) -> None:
    monkeypatch.setattr(tiktoken_backend, "LONGEST_RUN", 7)
    monkeypatch.setattr(
        tiktoken_backend,
        "_LONG_RUN",
        tiktoken_backend.re.compile(tiktoken_backend._LONG_RUN.pattern.replace("100000", "7")),
    )
    text = f"the{blank * 11}rose {blank * 7}{after}{blank * 5}by{blank * 9}{after}"
    assert FAST is not None
    assert FAST(text) == ENGINE.encode(text, add_special_tokens=False).ids


def test_a_million_blanks_are_encoded() -> None:
    text = "a" + " " * 1_300_001 + "b"
    ids = TOKENIZER.encode(text)
    assert TOKENIZER.decode(ids) == text
    assert TOKENIZER.token_text(ids[-1]) == "b" or TOKENIZER.token_text(ids[-1]) == " b"


def with_model(**changes: object) -> dict:
    found = record()
    found["model"] |= changes
    return found


def with_added_token() -> dict:
    found = record()
    last = max(found["model"]["vocab"].values())
    token = found["added_tokens"][0] | {"id": last + 1, "content": "river bank", "special": False}
    return found | {"added_tokens": [*found["added_tokens"], token]}


def with_a_token_no_merge_makes() -> dict:
    found = record()
    found["model"]["vocab"]["xyz"] = len(found["model"]["vocab"])
    return found


def with_ids_out_of_order() -> dict:
    found = record()
    vocabulary = found["model"]["vocab"]
    names = {place: token for token, place in vocabulary.items()}
    vocabulary[names[260]], vocabulary[names[270]] = 270, 260
    return found


def with_two_ways_to_a_token() -> dict:
    found = record()
    vocabulary = found["model"]["vocab"]
    for left, right in (("x", "y"), ("y", "z"), ("x", "yz"), ("xy", "z")):
        vocabulary.setdefault(left + right, len(vocabulary))
        found["model"]["merges"].append([left, right])
    return found


def with_a_token_that_is_never_reached() -> dict:
    found = record()
    vocabulary = found["model"]["vocab"]
    for left, right in (("x", "y"), ("y", "z"), ("x", "yz")):  # `xyz` begins with `xy`, which is joined first
        vocabulary.setdefault(left + right, len(vocabulary))
        found["model"]["merges"].append([left, right])
    return found


@pytest.mark.parametrize(
    "odd",
    [
        with_model(dropout=0.5),
        with_added_token(),
        with_a_token_no_merge_makes(),
        with_ids_out_of_order(),
        with_two_ways_to_a_token(),
        with_a_token_that_is_never_reached(),
        record() | {"pre_tokenizer": record()["pre_tokenizer"] | {"use_regex": False}},
    ],
    ids=["dropout", "added", "unmade", "order", "two ways", "unreached", "no pattern"],
)
def test_what_tiktoken_would_encode_differently_is_left_to_tokenizers(odd: dict) -> None:
    assert fast_encoder(engine_of(odd), odd) is None
    tokenizer = Tokenizer.from_json(json.dumps(odd | {"model": odd["model"] | {"dropout": None}}))
    for text in (*TEXTS, "xyz xyzxyz", "<eos> river bank"):
        expected = engine_of(odd | {"model": odd["model"] | {"dropout": None}}).encode(text, add_special_tokens=False)
        assert tokenizer.encode(text) == expected.ids


@given(mixed)
def test_cutting_in_pieces_first_changes_no_word(text: str) -> None:
    expected = [word for word, _ in ByteLevel(add_prefix_space=False).pre_tokenize_str(text)]
    assert byte_words(text) == expected
    assert [word for piece in pieces(text) for word in byte_words(piece)] == expected
    bare = text.encode("ascii", "ignore").decode()
    assert [word for piece in pieces(bare) for word in byte_words(piece)] == byte_words(bare)


@pytest.mark.slow
def test_every_character_is_cut_alike_by_both_engines() -> None:
    merged = {bytes([byte]): byte for byte in range(256)}
    for first in b"a1! ":
        merged |= {bytes([first, byte]): len(merged) + byte for byte in range(256)}
    from tiktoken import Encoding

    from regard.text.bytelevel import PATTERN

    encoding = Encoding("pairs", pat_str=PATTERN, mergeable_ranks=merged, special_tokens={})
    cut = ByteLevel(add_prefix_space=False)
    for code in range(sys.maxunicode + 1):
        if 0xD800 <= code < 0xE000:
            continue
        for before in "a1! ":
            together = encoding.encode_ordinary(before + chr(code))[0] >= 256
            assert together == (len(cut.pre_tokenize_str(before + chr(code))) == 1), hex(code)


@pytest.mark.parametrize("name", ["<tok>", "river", "a b", "日本", "ï", "\n\n", "text"])
@pytest.mark.parametrize("flag", ["lstrip", "rstrip", "normalized", "single_word", None])
def test_ordinary_added_tokens_are_found_as_the_engine_finds_them(name: str, flag: str | None) -> None:
    engine = Engine.from_str(ENGINE.to_str())
    flags = {"normalized": False} | ({} if flag is None else {flag: True})
    engine.add_tokens([AddedToken(name, special=False, **flags)])
    loaded = Tokenizer.from_json(engine.to_str())
    engine.encode_special_tokens = True  # no text can spell a special token
    around = (
        "{0}",
        "a{0}b",
        "x {0} b {0}",
        " {0}\n {0}  ",
        "{0}{0}",
        "the{0} {0}s <eos>",
        "日本語ïtextriver a b\n\n\n",
    )
    texts = [one.format(name) for one in around]
    expected = [engine.encode(text, add_special_tokens=False) for text in texts]
    assert any(name in one.tokens for one in expected)
    assert [loaded.encode(text) for text in texts] == loaded.encode_batch(texts) == [one.ids for one in expected]
    assert [loaded.decode(one.ids) for one in expected] == [engine.decode(one.ids) for one in expected]
