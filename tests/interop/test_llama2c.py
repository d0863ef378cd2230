"""llama2.c's files: trained models go on as llama2.c itself does, and a file that is not one is named.

The trained models are not part of the project; without them those tests skip. REGARD_STORIES15M is the folder of
stories15M.bin and tokenizer.bin.
"""

import os
import struct
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from regard.data.batching import Inputs, Padded
from regard.decoding.engine import generate
from regard.decoding.hypothesis import Stop
from regard.decoding.strategies import Greedy
from regard.errors import FileError
from regard.interop.llama2c import read_llama2c, read_llama2c_tokenizer
from regard.models.checkpoint import load_tensors, save_tensors
from regard.models.transformer import Transformer
from regard.text.special_tokens import SpecialTokens
from rounding import assert_close

STORIES = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "stories260K"
LARGER = Path(os.environ.get("REGARD_STORIES15M", "/nowhere"))
SAID = {
    "260K": " Lily. She loved to play outside in the park. One day, she saw a big, red ball. "
    "She wanted to play with it, but it was too high",
    "15M": ", there was a little girl named Lily. She loved to play outside in the sunshine.",
}
WIDTH, INNER, LAYERS, HEADS, SHARED, VOCABULARY, LONGEST = 24, 29, 3, 6, 2, 271, 13


def load(path: Path) -> Transformer:
    config, tensors = read_llama2c(path)
    with torch.device("meta"):
        model = Transformer(config)
    model.load_state_dict(tensors, assign=True)
    return model.eval()


# Trained models


def continued(model: Path, tokens: Path, count: int) -> str:
    module = load(model)
    tokenizer = read_llama2c_tokenizer(tokens, module.config.vocabulary)
    ids, _ = tokenizer.apply_template(tokenizer.encode("Once upon a time"))
    (found,) = generate(module, Inputs(Padded.of([ids])), Greedy(), Stop(tokenizer.bos_id, count))
    return tokenizer.decode([*ids, *found.ids])


@pytest.mark.skipif(not STORIES.is_dir(), reason=f"{STORIES} is not there")
def test_stories260k_goes_on_as_published():
    text = continued(STORIES / "stories260K.bin", STORIES / "tok512.bin", 80)
    assert text.startswith("Once upon a time, there was a little girl named")
    assert SAID["260K"] in text


@pytest.mark.slow
@pytest.mark.skipif(not LARGER.is_dir(), reason="REGARD_STORIES15M names no folder")
def test_stories15m_goes_on_as_published():
    text = continued(LARGER / "stories15M.bin", LARGER / "tokenizer.bin", 40)
    assert text.startswith("Once upon a time" + SAID["15M"])


def joined(pieces: list[bytes], scores: list[float], text: str) -> list[int]:
    """llama2.c's encoding, in its own words: a blank before the text, then the best pair of neighbours, again."""
    ids = {piece: place for place, piece in enumerate(pieces) if place >= 259}  # some files spell the bytes below it
    row: list[int] = []
    for character in f" {text}" if text else "":
        known = ids.get(character.encode())
        row += [known] if known is not None else [3 + byte for byte in character.encode()]
    while True:
        pairs = [(ids.get(pieces[left] + pieces[right], -1), at) for at, (left, right) in enumerate(pairwise(row))]
        best = max((pair for pair in pairs if pair[0] >= 0), key=lambda pair: (scores[pair[0]], -pair[1]), default=None)
        if best is None:
            return row
        row[best[1] : best[1] + 2] = [best[0]]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(STORIES / "tok512.bin", marks=pytest.mark.skipif(not STORIES.is_dir(), reason="not there")),
        pytest.param(
            LARGER / "tokenizer.bin",
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(not LARGER.is_dir(), reason="REGARD_STORIES15M names no folder"),
            ],
        ),
    ],
    ids=["512", "32000"],
)
def test_texts_are_cut_as_llama2c_cuts_them(path):
    pieces, scores = stored(path)
    tokenizer = read_llama2c_tokenizer(path)
    for text in TEXTS:
        assert tokenizer.encode(text) == joined(pieces, scores, text)
        assert tokenizer.decode(tokenizer.encode(text)) == text


TEXTS = [
    "Once upon a time",
    "",
    " two blanks  here ",
    "She didn't know what to say. “Why?” she asked, and the bear said: no!\n\nThe end.",
    "naïve 日本語 😀 straße",
    "aaaaaaa bbbb the the theth",
    "<s> </s> <unk> <0x0A>",
]


def stored(path: Path) -> tuple[list[bytes], list[float]]:
    content, place = path.read_bytes(), 4
    pieces, scores = [], []
    while place < len(content):
        score, length = struct.unpack_from("<fi", content, place)
        pieces.append(content[place + 8 : place + 8 + length])
        scores.append(score)
        place += 8 + length
    return pieces, scores


# A made-up model


def made(path: Path, *, tied: bool) -> dict[str, torch.Tensor]:
    """A random model in llama2.c's order, and its tensors by llama2.c's names."""
    head, draw = WIDTH // HEADS, np.random.default_rng(20230723)
    shapes = {
        "tok_embeddings": (VOCABULARY, WIDTH),
        "attention_norm": (LAYERS, WIDTH),
        "wq": (LAYERS, WIDTH, WIDTH),
        "wk": (LAYERS, SHARED * head, WIDTH),
        "wv": (LAYERS, SHARED * head, WIDTH),
        "wo": (LAYERS, WIDTH, WIDTH),
        "ffn_norm": (LAYERS, WIDTH),
        "w1": (LAYERS, INNER, WIDTH),
        "w2": (LAYERS, WIDTH, INNER),
        "w3": (LAYERS, INNER, WIDTH),
        "norm": (WIDTH,),
        "freq_real": (LONGEST, head // 2),
        "freq_imag": (LONGEST, head // 2),
    }
    if not tied:
        shapes["output"] = (VOCABULARY, WIDTH)
    arrays = {name: (draw.normal(size=shape) / 3).astype("<f4") for name, shape in shapes.items()}
    numbers = (WIDTH, INNER, LAYERS, HEADS, SHARED, VOCABULARY if tied else -VOCABULARY, LONGEST)
    path.write_bytes(struct.pack("<7i", *numbers) + b"".join(array.tobytes() for array in arrays.values()))
    return {name: torch.from_numpy(array).double() for name, array in arrays.items()}


def rms(vector: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return vector * (vector.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * weight


def transposed(heads: torch.Tensor) -> torch.Tensor:
    """[tokens, heads, head]: neighbouring coordinates as complex numbers, each transposed by its angle."""
    tokens, _, head = heads.shape
    angles = torch.outer(torch.arange(tokens).double(), 10_000 ** (-torch.arange(0, head, 2).double() / head))
    pairs = torch.view_as_complex(heads.reshape(*heads.shape[:2], head // 2, 2).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)[:, None]).flatten(2)


def reference(peer: dict[str, torch.Tensor], ids: list[int]) -> torch.Tensor:
    """LLaMA as llama2.c computes it, in float64."""
    head, count = WIDTH // HEADS, len(ids)
    stream = peer["tok_embeddings"][ids]
    hidden = torch.ones(count, count, dtype=torch.bool).triu(1)
    for layer in range(LAYERS):
        inputs = rms(stream, peer["attention_norm"][layer])
        query = transposed((inputs @ peer["wq"][layer].T).view(count, HEADS, head))
        key = transposed((inputs @ peer["wk"][layer].T).view(count, SHARED, head)).repeat_interleave(HEADS // SHARED, 1)
        value = (inputs @ peer["wv"][layer].T).view(count, SHARED, head).repeat_interleave(HEADS // SHARED, 1)
        scores = torch.einsum("qhd,khd->hqk", query, key) / head**0.5
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        stream = stream + torch.einsum("hqk,khd->qhd", weights, value).flatten(1) @ peer["wo"][layer].T
        inputs = rms(stream, peer["ffn_norm"][layer])
        inner = F.silu(inputs @ peer["w1"][layer].T) * (inputs @ peer["w3"][layer].T)
        stream = stream + inner @ peer["w2"][layer].T
    return rms(stream, peer["norm"]) @ peer.get("output", peer["tok_embeddings"]).T


@pytest.mark.parametrize("tied", [True, False])
def test_a_model_computes_what_llama2c_computes(tmp_path, tied):
    peer = made(tmp_path / "model.bin", tied=tied)
    model = load(tmp_path / "model.bin").double()
    ids = [3, 5, 7, 11, 13, 17, 268]
    with torch.no_grad():
        found = model(Inputs(Padded.of([ids])))[0]
    assert_close(found, reference(peer, ids), 1e-10)


def test_weights_are_mapped_and_the_file_stays_as_it_was(tmp_path):
    path = tmp_path / "model.bin"
    made(path, tied=True)
    before = path.read_bytes()
    _, tensors = read_llama2c(path)
    with torch.no_grad():
        for tensor in tensors.values():
            tensor.zero_()
    assert path.read_bytes() == before
    maps = Path("/proc/self/maps")
    if maps.is_file():
        assert str(path) in maps.read_text()


def test_what_was_read_can_be_saved(tmp_path):
    made(tmp_path / "model.bin", tied=False)
    _, tensors = read_llama2c(tmp_path / "model.bin")
    save_tensors(tmp_path / "model.safetensors", tensors)
    again = load_tensors(tmp_path / "model.safetensors")
    assert again.keys() == tensors.keys()
    assert all(torch.equal(again[name], tensors[name]) for name in tensors)


# What is no such file


def header(*numbers: int) -> bytes:
    return struct.pack("<7i", *numbers)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda whole: b"", "0 bytes, fewer than the header"),
        (lambda whole: whole[:27], "27 bytes, fewer than the header"),
        (lambda whole: whole[:-4], "too short"),
        (lambda whole: whole[:28], "too short"),
        (lambda whole: whole + b"\0\0\0\0", "too long"),
        (lambda whole: header(0, 1, 1, 1, 1, 1, 1) + whole[28:], "no llama2.c model: it begins with 0, 1"),
        (lambda whole: header(24, 29, 3, 6, 2, 0, 13) + whole[28:], "no llama2.c model"),
        (lambda whole: header(24, 29, 3, 5, 5, 271, 13) + whole[28:], "no llama2.c model"),
        (lambda whole: header(24, 29, 3, 6, 4, 271, 13) + whole[28:], "4 key/value heads do not divide 6"),
        (lambda whole: header(6, 29, 3, 2, 2, 271, 13) + whole[28:], "head width of 3 is odd"),
        (lambda whole: b"24ka" + whole[4:], "version 29 of llama2.c's format"),
        (lambda whole: b"This is some text, no model at all.", "no llama2.c model|too short"),
    ],
)
def test_a_file_that_is_no_model_is_named(tmp_path, damage, said):
    path = tmp_path / "model.bin"
    made(path, tied=True)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(FileError, match=said) as caught:
        read_llama2c(path)
    assert str(path) in caught.value.problem


def test_a_path_that_is_not_there_is_named(tmp_path):
    for read in (read_llama2c, read_llama2c_tokenizer):
        with pytest.raises(FileError, match="No such file"):
            read(tmp_path / "none.bin")


# The tokenizer's file


def made_tokenizer(more: list[tuple[bytes, float]]) -> bytes:
    pieces = [(b"<unk>", 0.0), (b"\n<s>\n", 0.0), (b"\n</s>\n", 0.0)]
    pieces += [(f"<0x{byte:02X}>".encode(), 0.0) for byte in range(256)]
    rows = [struct.pack("<fi", score, len(piece)) + piece for piece, score in [*pieces, *more]]
    return struct.pack("<i", 7) + b"".join(rows)


LETTERS = [(letter.encode(), -100.0 - place) for place, letter in enumerate(" abc")]


def test_the_pair_with_the_highest_score_is_joined_first(tmp_path):
    path = tmp_path / "tokenizer.bin"
    for first, second, expected in ((-1.0, -2.0, ["ab", "c"]), (-2.0, -1.0, ["a", "bc"])):
        path.write_bytes(made_tokenizer([*LETTERS, (b"ab", first), (b"bc", second)]))
        tokenizer = read_llama2c_tokenizer(path)
        assert tokenizer.pieces(tokenizer.encode("abc")) == [" ", *expected]
        assert joined(*stored(path), "abc") == tokenizer.encode("abc")


def test_the_special_tokens_are_llamas(tmp_path):
    path = tmp_path / "tokenizer.bin"
    path.write_bytes(made_tokenizer(LETTERS))
    tokenizer = read_llama2c_tokenizer(path, 263)
    assert tokenizer.special_tokens == SpecialTokens(bos=1, eos=2, unk=0)
    assert tokenizer.apply_template([260], [261]) == ([1, 260, 1, 261], [0, 0, 1, 1])
    assert tokenizer.size == 263


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "0 tokens"),
        (made_tokenizer(LETTERS)[:-1], "ends within token 262"),
        (made_tokenizer([])[: 4 + 13 * 3], "ends within|fewer than the 256 bytes"),
        (made_tokenizer([*LETTERS, (b"\xff", 0.0)]), "token 263 is not UTF-8"),
        (made_tokenizer([*LETTERS, (b"a", 0.0)]), "'a' twice"),
        (b"A text that is no tokenizer at all", "no llama2.c tokenizer"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_named(tmp_path, content, said):
    path = tmp_path / "tokenizer.bin"
    path.write_bytes(content)
    with pytest.raises(FileError, match=said) as caught:
        read_llama2c_tokenizer(path)
    assert str(path) in caught.value.problem


def test_a_tokenizer_of_another_model_is_refused(tmp_path):
    path = tmp_path / "tokenizer.bin"
    path.write_bytes(made_tokenizer(LETTERS))
    with pytest.raises(FileError, match="263 tokens and the model 512"):
        read_llama2c_tokenizer(path, 512)
