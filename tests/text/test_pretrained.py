"""Other people's tokenizers: the ids, texts and frames of `transformers`, and our laws on top."""

import json
import pickle
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pretrained_kinds import ASKED, KINDS, write
from tokenizers import Tokenizer as Engine
from tokenizers.models import BPE

from regard.errors import FileError, InputError
from regard.text.incremental import TextStream
from regard.text.pretrained import PretrainedTokenizer, open_pretrained
from regard.text.special_tokens import SpecialTokens

transformers = pytest.importorskip("transformers")
GPT2 = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "gpt2_tokenizer"


@pytest.fixture(scope="module", params=list(KINDS))
def folder(request, tmp_path_factory) -> Path:
    return write(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def own(folder) -> PretrainedTokenizer:
    return open_pretrained(folder)


@pytest.fixture(scope="module")
def peer(folder):
    return transformers.AutoTokenizer.from_pretrained(folder)


def plain(peer, text: str) -> list[int]:
    return peer(text, add_special_tokens=False, padding=False, truncation=False)["input_ids"]


# Parity with transformers


def test_texts_have_the_same_ids(own, peer):
    expected = [plain(peer, text) for text in ASKED]
    assert [own.encode(text) for text in ASKED] == expected
    assert own.encode_batch(ASKED) == expected


def test_ids_have_the_same_text(own, peer):
    for text in ASKED:
        ids = plain(peer, text)
        assert own.decode(ids) == peer.decode(ids, skip_special_tokens=True)


def test_a_text_has_the_same_special_tokens_round_it(own, peer):
    for text in ASKED:
        expected = peer(text, padding=False, truncation=False, return_token_type_ids=True)
        assert own.apply_template(own.encode(text)) == (expected["input_ids"], expected["token_type_ids"])
    assert own.added() == peer.num_special_tokens_to_add()


def test_two_texts_have_the_same_special_tokens_round_them(own, peer):
    for first, second in zip(ASKED, reversed([text for text in ASKED if text]), strict=False):
        expected = peer(first, second, padding=False, truncation=False, return_token_type_ids=True)
        found = own.apply_template(own.encode(first), own.encode(second))
        assert found == (expected["input_ids"], expected["token_type_ids"])
    assert own.added(pair=True) == peer.num_special_tokens_to_add(pair=True)


def test_roles_have_the_same_ids(own, peer):
    for role in ("pad", "bos", "eos", "unk", "mask", "cls", "sep"):
        assert getattr(own.special_tokens, role) == getattr(peer, f"{role}_token_id")
    assert own.size == len(peer)


def test_what_it_writes_is_read_by_both_as_the_same(own, peer, tmp_path):
    (tmp_path / "tokenizer.json").write_text(own.to_json(), encoding="utf-8")
    again = PretrainedTokenizer.load(tmp_path / "tokenizer.json")
    other = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    for text in ASKED:
        assert again.encode(text) == plain(other, text) == plain(peer, text)
        assert again.apply_template(own.encode(text))[0] == other(text, padding=False, truncation=False)["input_ids"]
    assert again.special_tokens == own.special_tokens
    assert again == own


# Laws


def test_a_text_never_spells_a_special_token(own):
    named = set(own.special_ids.values()) - ({own.special_tokens.unk} - {own.special_tokens.eos})
    assert named
    for name in own.special_ids:
        for text in (name, f"a{name}b", f" {name} the {name}"):
            ids = own.encode(text)
            assert not named & set(ids)
            assert own.encode_batch([text]) == [ids]


def test_an_engine_alone_would_let_a_text_spell_the_end(tmp_path):
    peer = transformers.AutoTokenizer.from_pretrained(write("unigram", tmp_path))
    peer.backend_tokenizer.encode_special_tokens = True
    assert peer.eos_token_id in plain(peer, "a</s>b")


def test_merges_that_spell_a_special_token_are_left_out(tmp_path):
    pieces = ["<unk>", "</s>", "<", "/", "s", ">", "</", "s>"]
    merges = [("<", "/"), ("s", ">"), ("</", "s>")]
    engine = Engine(BPE(vocab={piece: place for place, piece in enumerate(pieces)}, merges=merges, unk_token="<unk>"))
    assert engine.encode("</s>").ids == [1]
    (tmp_path / "tokenizer.json").write_text(engine.to_str())
    assert open_pretrained(tmp_path).encode("</s>") == [6, 7]


def test_tokens_that_are_called_special_without_a_role_are_not_spelt(tmp_path):
    folder = write("split-bytes", tmp_path)
    assert 314 in open_pretrained(folder).encode("the river is")
    rewritten(folder, "tokenizer_config.json", {"additional_special_tokens": ["river is", "<|nowhere|>"]})
    assert 314 not in open_pretrained(folder).encode("the river is")


def test_a_special_token_stays_what_the_file_says(tmp_path):
    tokens = json.loads(open_pretrained(write("roberta", tmp_path)).to_json())["added_tokens"]
    assert [token["lstrip"] for token in tokens if token["content"] == "<mask>"] == [True]


def test_ids_stream_to_what_decoding_gives(own):
    @settings(suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(st.integers(0, own.size - 1), max_size=17))
    def check(ids: list[int]) -> None:
        stream = own.stream()
        assert isinstance(stream, TextStream)
        assert "".join([*(stream.push(token) for token in ids), stream.end()]) == own.decode(ids)

    check()


def test_no_piece_of_a_streamed_text_holds_a_broken_character(own):
    for text in ASKED:
        ids = own.encode(text)
        stream = own.stream()
        pieces = [*(stream.push(token) for token in ids), stream.end()]
        assert "".join(pieces) == own.decode(ids)
        assert "�" not in "".join(pieces)


def test_a_token_shows_what_it_adds(own):
    for text in ASKED[:4]:
        ids = own.encode(text)
        added = b"".join(own.token_bytes(token) for token in ids).decode()
        assert added.strip() == own.decode(ids).strip()
        assert len(own.pieces(ids)) == len(ids)
    for name, token in own.special_ids.items():
        assert own.token_bytes(token) == b""
        assert own.token_text(token) == name


def test_offsets_point_into_the_text(own):
    for text in ASKED[:4]:
        spans = own.offsets(text)
        assert len(spans) == len(own.encode(text))
        assert all(0 <= start <= end <= len(text) for start, end in spans)
        covered = {place for start, end in spans for place in range(start, end)}
        assert {place for place, character in enumerate(text) if not character.isspace()} <= covered


def test_it_travels_to_another_process(own):
    again = pickle.loads(pickle.dumps(own))
    assert again.encode(ASKED[0]) == own.encode(ASKED[0])
    assert again.special_tokens == own.special_tokens


def test_special_tokens_can_be_added(own):
    more = own.with_specials(["<extra>"])
    assert more.size == own.size + 1
    assert more.special_ids["<extra>"] == own.size
    assert own.size not in more.encode("<extra>")
    assert more.special_tokens == own.special_tokens


def test_an_id_outside_the_vocabulary_is_refused(own):
    with pytest.raises(InputError, match=f"vocabulary of {own.size}"):
        own.decode([own.size])


# The files beside it


def rewritten(folder: Path, name: str, values: dict) -> None:
    path = folder / name
    before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    path.write_text(json.dumps(before | values), encoding="utf-8")


def test_ids_in_the_config_win(tmp_path):
    folder = write("byte-fallback", tmp_path)
    rewritten(folder, "config.json", {"eos_token_id": [7, 11], "pad_token_id": -1, "bos_token_id": None})
    special_tokens = open_pretrained(folder).special_tokens
    assert (special_tokens.eos, special_tokens.pad, special_tokens.bos) == (7, None, 1)
    rewritten(folder, "config.json", {"eos_token_id": [7, 2], "pad_token_id": 13})
    special_tokens = open_pretrained(folder).special_tokens
    assert (special_tokens.eos, special_tokens.pad, special_tokens.bos) == (2, 13, 1)


def test_what_is_missing_is_said_and_the_end_fills(tmp_path):
    tokenizer = open_pretrained(write("byte-fallback", tmp_path))
    assert tokenizer.pad_id == tokenizer.eos_id == 2
    with pytest.raises(InputError, match=r"no mask token .*bos <s>.*mask_token in tokenizer_config.json"):
        _ = tokenizer.mask_id


def test_an_encoders_first_and_last_special_tokens_begin_and_end(tmp_path):
    tokenizer = open_pretrained(write("wordpiece", tmp_path))
    assert (tokenizer.bos_id, tokenizer.eos_id) == (tokenizer.special_tokens.cls, tokenizer.special_tokens.sep)


@pytest.mark.parametrize("begin", [True, False])
def test_the_tokenizer_itself_says_which_special_tokens_stand_round_a_text(tmp_path, begin):
    folder = write("byte-fallback", tmp_path)
    rewritten(folder, "tokenizer_config.json", {"add_bos_token": begin, "add_eos_token": True})
    own, peer = open_pretrained(folder), transformers.AutoTokenizer.from_pretrained(folder)
    assert own.apply_template(own.encode("the roses"))[0] == peer("the roses")["input_ids"]


def test_older_folders_name_roles_in_a_file_of_their_own(tmp_path):
    folder = write("unigram", tmp_path)
    expected = open_pretrained(folder).special_tokens
    (folder / "tokenizer_config.json").unlink()
    roles = {"eos_token": {"content": "</s>", "lstrip": False}, "pad_token": "<pad>", "unk_token": "<unk>"}
    rewritten(folder, "special_tokens_map.json", roles)
    assert open_pretrained(folder).special_tokens == expected


def test_where_nothing_is_named_customary_names_are_known(tmp_path):
    folder = write("wordpiece", tmp_path)
    expected = open_pretrained(folder).special_tokens
    (folder / "tokenizer_config.json").unlink()
    assert open_pretrained(folder).special_tokens == expected


def test_a_role_makes_a_token_special(tmp_path):
    folder = write("split-bytes", tmp_path)
    assert open_pretrained(folder).encode("the river is")[-1] == 314
    rewritten(folder, "tokenizer_config.json", {"pad_token": "river is"})
    assert 314 not in open_pretrained(folder).encode("the river is")


# Files without a tokenizer.json


@pytest.mark.parametrize("name", ["tokenizer.model", "spiece.model"])
def test_a_lone_model_of_pieces_that_is_cut_is_named(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x0a\x0e")
    with pytest.raises(FileError, match=f"{name} is no SentencePiece model, or is damaged: it ends within field 1"):
        open_pretrained(tmp_path)


def test_marians_files_are_refused(tmp_path):
    for name in ("source.spm", "target.spm", "vocab.json"):
        (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(FileError, match=r"source.spm and target.spm alone; .*tokenizer.json"):
        open_pretrained(tmp_path)


@pytest.mark.parametrize(("content", "said"), [("{", "not a tokenizer"), ("", "is empty"), ("[]", "not a")])
def test_a_damaged_file_is_named(tmp_path, content, said):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(FileError, match=said):
        open_pretrained(tmp_path)


def test_a_folder_without_one_is_named(tmp_path):
    with pytest.raises(FileError, match="holds no tokenizer"):
        open_pretrained(tmp_path)


@pytest.mark.skipif(not GPT2.is_dir(), reason=f"{GPT2} is not there")
def test_gpt2s_two_files_are_read(tmp_path):
    for name in ("vocab.json.gz", "merges.txt.gz"):
        (tmp_path / name).symlink_to(GPT2 / name)
    own = open_pretrained(tmp_path)
    assert own.encode("hello world") == [31373, 995]  # from tiktoken's documentation
    assert own.special_tokens == SpecialTokens(bos=50256, eos=50256)
    assert own.apply_template([31373, 995]) == ([31373, 995], [0, 0])
    assert own._fast is not None


def test_robertas_two_files_have_the_template_of_its_tokenizer_json(tmp_path):
    whole = open_pretrained(write("roberta", tmp_path / "whole"))
    record = json.loads(whole.to_json())["model"]
    two = tmp_path / "two"
    two.mkdir()
    (two / "vocab.json").write_text(json.dumps(record["vocab"]))
    (two / "merges.txt").write_text("\n".join(" ".join(pair) for pair in record["merges"]))
    rewritten(two, "config.json", {"model_type": "roberta"})
    found = open_pretrained(two)
    assert found.apply_template([5, 7], [11]) == whole.apply_template([5, 7], [11]) == ([0, 5, 7, 2, 2, 11, 2], [0] * 7)
    assert found.encode("a</s>b") == whole.encode("a</s>b")


# Special tokens in a text, where they are asked for


def test_names_of_special_tokens_are_these_tokens_where_that_is_asked_for(own, peer):
    names = [peer.decode([token]) for token in peer.all_special_ids]
    texts = [f"{name}The {name} river{name} {name}is wide." for name in names] + [" ".join(names), *ASKED]
    for text in texts:
        assert own.encode(text, special_tokens=True) == plain(peer, text)
        assert own.parsing_special_tokens.encode_batch([text, text]) == [plain(peer, text)] * 2
    spelt = own.encode("".join(names))
    assert not {*spelt} & {*peer.all_special_ids} - {own.special_tokens.unk}
