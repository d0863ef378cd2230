"""WordPiece cuts as BERT's does: the engine, a plain reference and `transformers` give the same pieces."""

import gzip
import pickle
import sysconfig
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine

from regard.errors import ConfigError, FileError, InputError
from regard.text.counting import count_words
from regard.text.tokenizer import Tokenizer
from regard.text.wordpiece import SPECIALS, WordPieceTokenizer, cut_word, word_splitter, words

DATA = Path(__file__).parents[2].parent / "shared" / "data"
BERT = DATA / "gpt2_tokenizer" / "bert-base-uncased-vocab.txt.gz"
WIKITEXT = DATA / "wikitext2" / "valid.raw.gz"

PIECES = [
    "a",
    "b",
    "##a",
    "##b",
    "ab",
    "##ab",
    "##ba",
    "abb",
    "é",
    "e",
    "##e",
    "我",
    "σ",
    "##σ",
    ".",
    "-",
    "$",
    "[",
    "]",
]
ODD = (
    "He's un-affable, naïve & CAFÉ; ÅNGSTRÖM straße ΑΣΣ ΟΔΥΣΣΕΥΣ İstanbul ﬁne",
    "我爱 北京天安门 mixed中文text カタカナ ひらがな 한국어 𠀀𪜀 豈",
    "مرحبا بالعالم שָׁלוֹם עולם \u202bright to left\u202c नमस्ते ไทย",
    "🙂🙂 👩‍👩‍👧‍👦 flags 🇫🇷 skin 👍🏽 ☃ ™ €100 $5.00 50% a+b=c x^2 `code` ~tilde |pipe|",
    "nul \x00 bell \x07 tab\there vt\x0bff\x0c gs\x1d nel\x85x nbsp\u00a0y zwsp\u200bz zwj\u200d bom\ufeff bad\ufffd",
    "line\u2028separator paragraph\u2029here soft\u00adhyphen e\u0301 a\u0300\u0323 \u0301alone",
    "x" * 100 + " " + "y" * 101 + " " + "é" * 100 + " " + "ab" * 5000,
    "“quotes” «guillemets» – — … ¿qué? ¡no! ‹› 「」。、 ٪ ؟ ।",
    "[CLS] [SEP] [MASK] [UNK] [PAD] ##ing # #",
    "",
    "   \t \r\n ",
)
ALPHABETS = "aB\tZ é\u0301ÅßΣς字\u4e00豈.$「」\u200d\x00\x0b\x85\ufffd\u00a0\u2028م\u064bשָ한가の🙂\U0001f468\ue000"


def tokenizer(cased: bool = False) -> WordPieceTokenizer:
    return WordPieceTokenizer.of([*SPECIALS, *PIECES], cased=cased)


def reference(text: str, vocabulary: set[str], *, cased: bool = False) -> list[str]:
    return [piece for word in words(text, cased=cased) for piece in cut_word(word, vocabulary)]


@given(st.text(st.sampled_from(ALPHABETS), max_size=30), st.booleans())
def test_the_engine_cuts_as_the_reference_does(text, cased):
    own = tokenizer(cased)
    assert own.pieces(own.encode(text)) == reference(text, {*SPECIALS, *PIECES}, cased=cased)


@given(st.text(st.sampled_from(ALPHABETS), max_size=60), st.booleans())
def test_counting_splits_as_the_reference_does(text, cased):
    assert list(word_splitter(cased=cased)(text)) == words(text, cased=cased)


@pytest.mark.parametrize("cased", [True, False])
def test_every_character_of_the_old_scripts_is_read_as_the_reference_reads_it(cased):
    """Blocks that have not grown since the Unicode that the engine's tables are of."""
    split = word_splitter(cased=cased)
    blocks = ((0, 0x520), (0x531, 0x5C8), (0x620, 0x7B2), (0x901, 0x978), (0xE01, 0xE5C), (0x1E00, 0x2E40))
    blocks += ((0x3000, 0x3130), (0x3400, 0x3500), (0x4E00, 0x5000), (0xA000, 0xA4C7), (0xAC00, 0xAD00))
    blocks += ((0xE000, 0xE100), (0xF900, 0xFB20), (0xFF00, 0x10000), (0x1F300, 0x1F6D0), (0x20000, 0x20100))
    for first, last in blocks:
        for code in range(first, last):
            text = f"a{chr(code)}b"
            assert list(split(text)) == words(text, cased=cased), hex(code)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Unaffable", ["un", "##aff", "##able"]),
        ("unwanted running", ["un", "##want", "##ed", "runn", "##ing"]),
        ("unwantedX running", ["[UNK]", "runn", "##ing"]),
        ("ÜNWANTED", ["un", "##want", "##ed"]),
    ],
)
def test_the_papers_own_examples(text, expected):
    pieces = ["want", "##want", "##ed", "wa", "un", "runn", "##ing", "##aff", "##able", ",", "low"]
    own = WordPieceTokenizer.of([*SPECIALS, *pieces])
    assert own.pieces(own.encode(text)) == reference(text, set(pieces)) == expected


def test_a_cased_vocabulary_keeps_case_and_accents():
    assert words("Café ΑΣ", cased=True) == ["Café", "ΑΣ"]
    assert words("Café ΑΣ") == ["cafe", "ασ"]
    own = tokenizer(cased=True)
    assert own.pieces(own.encode("é e É")) == ["é", "e", "[UNK]"]


def test_a_word_of_more_than_a_hundred_characters_is_unknown():
    own = tokenizer()
    assert own.decode(own.encode("a" * 100)) == "a" * 100
    assert own.pieces(own.encode("a" * 101)) == ["[UNK]"]


def test_decoding_joins_pieces_and_leaves_special_tokens_out():
    own = tokenizer()
    ids = [own.bos_id, *own.encode("ababba b. a-b"), own.eos_id, own.pad_id]
    assert own.decode(ids) == "ababba b. a - b"
    assert own.decode(own.encode(own.decode(ids))) == own.decode(ids)


@given(st.lists(st.integers(5, len(SPECIALS) + len(PIECES) - 1), max_size=9))
def test_what_tokens_add_is_what_decoding_gives(ids):
    own = tokenizer()
    ids = [own.encode("a")[0], *ids]
    assert b"".join(map(own.token_bytes, ids)).decode().removeprefix(" ") == own.decode(ids)
    stream = own.stream()
    assert "".join([*map(stream.push, ids), stream.end()]) == own.decode(ids)


def test_marks_have_berts_names_and_a_text_cannot_spell_them():
    own = tokenizer()
    marks = (own.pad_id, own.unk_id, own.bos_id, own.eos_id, own.mask_id)
    assert tuple(own.pieces(marks)) == SPECIALS
    assert not {own.bos_id, own.eos_id, own.mask_id, own.pad_id} & set(own.encode("[CLS] a [SEP][MASK] [PAD]"))


def test_offsets_point_into_the_original_text():
    own = tokenizer()
    text = "  A\u0301Bab 我b\x00ab"
    assert own.pieces(own.encode(text)) == ["ab", "##ab", "我", "b", "##ab"]
    assert [text[start:end] for start, end in own.offsets(text)] == ["A\u0301B", "ab", "我", "b", "ab"]


def test_a_saved_tokenizer_is_the_same_and_the_engine_reads_it():
    own = tokenizer()
    again = WordPieceTokenizer.from_json(own.to_json())
    assert again == own
    assert type(again) is WordPieceTokenizer
    assert pickle.loads(pickle.dumps(own)) == own
    engine = Engine.from_str(own.to_json())
    for text in ODD[:-3]:
        assert engine.encode(text, add_special_tokens=False).ids == own.encode(text)
        assert engine.encode(text).ids == [own.bos_id, *own.encode(text), own.eos_id]
    assert own.encode_batch(ODD) == [own.encode(text) for text in ODD]


def test_vocabularies_that_cannot_be_used_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"lacks \[MASK\]"):
        WordPieceTokenizer.of(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"])
    with pytest.raises(InputError, match="has 'a' more than once"):
        WordPieceTokenizer.of([*SPECIALS, "a", "b", "a"])
    path = tmp_path / "vocab.txt"
    path.write_text("a\nb\n")
    with pytest.raises(FileError, match=r"vocab.txt: the vocabulary lacks \[PAD\]"):
        WordPieceTokenizer.load_vocabulary(path)
    with pytest.raises(FileError, match="does not exist"):
        WordPieceTokenizer.load_vocabulary(tmp_path / "nowhere.txt")
    other = Tokenizer.train(["a b"] * 3, 270).to_json()
    with pytest.raises(InputError, match="BERT's WordPiece is expected, but model"):
        WordPieceTokenizer.from_json(other)
    with pytest.raises(InputError, match="half of a surrogate pair"):
        tokenizer().encode("a\ud800")


def test_a_vocabulary_file_is_read_line_by_line(tmp_path):
    for name, content in (("unix", "\n"), ("dos", "\r\n")):
        path = tmp_path / name
        path.write_bytes((content.join([*SPECIALS, *PIECES]) + content).encode())
        assert WordPieceTokenizer.load_vocabulary(path) == tokenizer()


def test_a_trained_tokenizer_knows_every_word_of_its_texts():
    texts = ["the cat sat on the mat", "Die Katze saß, naïvement!", "我们 在 the mat"] * 3
    own = WordPieceTokenizer.train(texts, 90)
    assert own.size <= 90
    for text in texts:
        assert own.unk_id not in own.encode(text)
        assert own.decode(own.encode(text)).split() == own.decode(own.encode(text)).lower().split()
    assert "the" in own.pieces(own.encode("the"))
    cased = WordPieceTokenizer.train(texts, 90, cased=True)
    assert cased.decode(cased.encode("Katze saß")) == "Katze saß"


def test_a_vocabulary_too_small_for_the_characters_is_refused():
    said = r"a vocabulary of 10 cannot hold 5 special tokens and the 6 characters .*; use a size of 11 or more"
    with pytest.raises(ConfigError, match=said):
        WordPieceTokenizer.train(["abcd dcba"], 10)
    assert WordPieceTokenizer.train(["abcd dcba"], 11).size == 11
    with pytest.raises(InputError, match="no words to learn pieces from"):
        WordPieceTokenizer.train(["  \n"], 300)


@pytest.fixture(scope="module")
def bert() -> WordPieceTokenizer:
    if not BERT.is_file():
        pytest.skip(f"{BERT} is not there")
    return WordPieceTokenizer.load_vocabulary(BERT)


@pytest.fixture(scope="module")
def mixed_lines() -> list[str]:
    """WikiText, Python source and odd characters."""
    library = Path(sysconfig.get_paths()["stdlib"])
    lines = list(ODD)
    for name in ("ast.py", "textwrap.py", "html/entities.py", "test/test_unicodedata.py"):
        if (library / name).is_file():
            lines += (library / name).read_text(encoding="utf-8", errors="replace").splitlines()
    if WIKITEXT.is_file():
        lines += gzip.decompress(WIKITEXT.read_bytes()).decode().splitlines()
    return lines


def test_berts_vocabulary_gives_what_transformers_gives(bert, mixed_lines):
    from transformers import BertTokenizer

    vocabulary = {piece: at for at, piece in enumerate(bert.pieces(range(bert.size)))}
    peer = BertTokenizer(vocab=vocabulary)
    lines = [line for line in mixed_lines if not any(special in line for special in SPECIALS)]
    assert bert.encode_batch(lines) == peer(lines, add_special_tokens=False)["input_ids"]
    assert [bert.decode(ids) for ids in bert.encode_batch(lines[-50:])] == [
        peer.decode(ids, skip_special_tokens=True) for ids in bert.encode_batch(lines[-50:])
    ]


def test_berts_vocabulary_gives_what_the_reference_gives(bert, mixed_lines):
    vocabulary = set(bert.pieces(range(bert.size)))
    for line in [*ODD, *mixed_lines[::29]]:
        assert bert.pieces(bert.encode(line)) == reference(line, vocabulary), line


def test_berts_vocabulary_counts_the_words_it_encodes(bert, mixed_lines):
    lines = [line for line in mixed_lines[:500] if len(line) < 1000]
    expected = Counter(word for line in lines for word in words(line))
    found = count_words(lines, word_splitter())
    assert found.total == expected.total()
    assert found.counts == expected
