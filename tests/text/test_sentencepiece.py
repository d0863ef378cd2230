"""A lone `.model` gives the ids that SentencePiece gives, and one that is damaged or asks for more is refused."""

import io
import json
from random import Random

import pytest

from regard.errors import FileError
from regard.text.pretrained import PretrainedTokenizer, open_any, open_pretrained

spm = pytest.importorskip("sentencepiece")

PHRASES = ["the river bank", "from my bank account", "naïve café", "schöne Größe", "12,345.67", "日本語の文章"]
PHRASES += ["don't stop", "aaaa bbbb abab", "x = f(y) + 1", "ﬁne ﬂow ①②"]
NASTY = [
    "",
    " ",
    "  two  blanks ",
    "\t tab\n",
    "▁under",
    "a▁",
    "<s> </s> <unk>",
    "<0x0A>",
    "ﬁ ① １２３ … ½ Ⅷ",
    "\u200b",
]
NASTY += [
    "🇫🇷 👩\u200d👧",
    "\x00\x01",
    "abababab",
    "кириллица",
    "\u00a0nbsp\u00a0",
    "\u3000wide",
    "e\u0301",
    "한글",
    "𝔘𝔫𝔦",
]
NASTY += ["\u200b", "𝔘𝔫𝔦", "bank" * 40]
LETTERS = "ab cdef ghijkn  orst.,é日本ﬁ①▁\t１"
CASES = {
    "unigram": ("unigram", {"normalization_rule_name": "nmt_nfkc"}),
    "unigram as it is": ("unigram", {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}),
    "bpe": ("bpe", {"normalization_rule_name": "nfkc_cf", "add_dummy_prefix": False}),
    "llama's": (
        "bpe",
        {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "byte_fallback": True},
    ),
}


def train(kind: str, **options) -> bytes:
    draw, written = Random(1), io.BytesIO()
    lines = (" ".join(draw.choices(PHRASES, k=5)) for _ in range(300))
    size = {"vocab_size": 420 if options.get("byte_fallback") else 150, "hard_vocab_limit": False}
    how = {"model_type": kind, "minloglevel": 2, "num_threads": 1, "character_coverage": 0.98}
    spm.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=written, **size, **how, **options)
    return written.getvalue()


@pytest.fixture(scope="module", params=CASES)
def pair(request, tmp_path_factory):
    kind, options = CASES[request.param]
    content = train(kind, **options)
    path = tmp_path_factory.mktemp("pieces") / "any.model"
    path.write_bytes(content)
    return spm.SentencePieceProcessor(model_proto=content), open_any(path)


def texts() -> list[str]:
    draw = Random(2)
    return [*NASTY, *PHRASES, *("".join(draw.choices(LETTERS, k=draw.randrange(50))) for _ in range(300))]


def test_every_text_has_the_ids_of_sentencepiece(pair):
    oracle, own = pair
    for text in texts():
        assert own.encode(text) == oracle.encode(text), text


def test_ids_become_the_text_that_sentencepiece_makes_of_them(pair):
    oracle, own = pair
    for text in texts():
        ids = [one for one in oracle.encode(text) if one != oracle.unk_id()]
        assert own.decode(ids) == oracle.decode(ids), text


def test_it_is_the_same_after_it_was_saved(pair):
    _, own = pair
    again = PretrainedTokenizer.from_json(own.to_json())
    assert again.special_tokens == own.special_tokens
    assert all(again.encode(text) == own.encode(text) for text in texts())


def test_the_special_tokens_are_those_of_the_file(pair):
    oracle, own = pair
    found = own.special_tokens
    assert (found.unk, found.bos, found.eos, found.pad) == (oracle.unk_id(), oracle.bos_id(), oracle.eos_id(), None)
    assert own.size == oracle.get_piece_size()


@pytest.fixture(scope="module")
def unigram():
    return train("unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)


def test_a_t5_folder_ends_its_texts_and_has_its_sentinels_behind_the_pieces(unigram, tmp_path):
    (tmp_path / "spiece.model").write_bytes(unigram)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5", "pad_token_id": 0, "eos_token_id": 1}))
    own, oracle = open_pretrained(tmp_path), spm.SentencePieceProcessor(model_proto=unigram)
    ids = oracle.encode("the river bank")
    assert own.apply_template(own.encode("the river bank"))[0] == [*ids, 1]
    last = oracle.get_piece_size() + 99
    assert [own.engine.token_to_id(f"<extra_id_{place}>") for place in (0, 99)] == [last, last - 99]
    assert own.decode([*ids, last, 1]) == "the river bank"


def test_a_llama_folder_begins_its_texts_and_has_what_is_added_beside(tmp_path):
    content = train("bpe", byte_fallback=True)
    oracle = spm.SentencePieceProcessor(model_proto=content)
    (tmp_path / "tokenizer.model").write_bytes(content)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    size = oracle.get_piece_size()
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<pad>": size, "<s>": 1}))
    own = open_pretrained(tmp_path)
    assert own.apply_template(own.encode("the bank"))[0] == [1, *oracle.encode("the bank")]
    assert own.engine.token_to_id("<pad>") == size
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": False, "add_eos_token": True}))
    assert open_pretrained(tmp_path).apply_template([7])[0] == [7, 2]
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<pad>": size + 1}))
    with pytest.raises(FileError, match=f"does not number its tokens from {size}"):
        open_pretrained(tmp_path)


# What is refused


def test_every_cut_of_a_file_is_refused_or_fewer_pieces_by_a_sentence(unigram, tmp_path):
    path, said = tmp_path / "tokenizer.model", []
    for length in range(0, len(unigram), len(unigram) // 60):
        path.write_bytes(unigram[:length])
        try:
            open_any(path)
        except FileError as error:
            said.append(error.problem)
    assert len(said) > 30
    assert all(str(path) in one for one in said)


def test_bytes_of_any_kind_are_a_tokenizer_or_a_sentence(unigram, tmp_path):
    draw, path = Random(3), tmp_path / "tokenizer.model"
    for _ in range(200):
        content = bytearray(unigram)
        for _ in range(draw.randrange(1, 6)):
            content[draw.randrange(len(content))] = draw.randrange(256)
        path.write_bytes(bytes(content))
        try:
            open_any(path).encode("the river bank")
        except FileError:
            continue


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kind": "word"}, "cuts texts by 'word', which is not known here; use unigram or bpe"),
        ({"kind": "bpe", "user_defined_symbols": ["<sep>"]}, "has pieces that users defined, which are not known here"),
        ({"kind": "bpe", "treat_whitespace_as_suffix": True}, "has blanks at the ends of words"),
    ],
)
def test_what_is_not_known_is_named(options, said, tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(train(**options))
    with pytest.raises(FileError) as refused:
        open_any(tmp_path)
    assert said in str(refused.value)


def test_a_kind_of_model_whose_numbering_is_another_is_refused(unigram, tmp_path):
    (tmp_path / "sentencepiece.bpe.model").write_bytes(unigram)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "xlm-roberta"}))
    with pytest.raises(FileError, match="how a 'xlm-roberta' model numbers the pieces"):
        open_pretrained(tmp_path)


def test_several_files_are_refused_unless_one_has_the_usual_name(unigram, tmp_path):
    for name in ("one.model", "two.model"):
        (tmp_path / name).write_bytes(unigram)
    with pytest.raises(FileError, match=r"has one.model and two.model"):
        open_pretrained(tmp_path)
    (tmp_path / "spiece.model").write_bytes(unigram)
    assert open_pretrained(tmp_path).encode("the bank")
