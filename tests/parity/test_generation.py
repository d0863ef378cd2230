"""What is generated, token for token as `transformers` does it in float64; and what sampling draws from."""

import logging

import pytest
import torch
from tiny_peers import ANSWERS, PEERS, TEXTS, cross, our_inputs, saved

from rounding import assert_close

transformers = pytest.importorskip("transformers")

from regard.data.batching import Inputs, Padded  # noqa: E402
from regard.decoding.engine import generate  # noqa: E402
from regard.decoding.filters import temperature as divided  # noqa: E402
from regard.decoding.filters import top_k as among  # noqa: E402
from regard.decoding.filters import top_p as reaching  # noqa: E402
from regard.decoding.hypothesis import Stop  # noqa: E402
from regard.decoding.strategies import Beam, Greedy  # noqa: E402
from regard.interop.huggingface import read_model  # noqa: E402

logging.getLogger("transformers").setLevel(logging.ERROR)
GENERATING = ["gpt", "t5", "t5 1.1", "llama", "llama 3", "marian", "mistral", "gemma3"]
START, PAD, NEVER = 52, 50, 53


@pytest.fixture(scope="module", params=GENERATING)
def pair(request, tmp_path_factory):
    peer = PEERS[request.param]
    expected = peer.build(attention="sdpa")  # their eager one gives NaN for padding in float64
    own = read_model(saved(expected, tmp_path_factory.mktemp("peer")))
    return peer, expected.double(), own.double()


def prompts(peer) -> Inputs:
    texts = Padded.of(TEXTS, fill=PAD, side="right" if cross(peer) else "left")
    return Inputs(Padded.of([[START]] * len(TEXTS)), texts) if cross(peer) else Inputs(texts)


def their_texts(peer, expected, end: int, beams: int, limit: int) -> list[tuple[int, ...]]:
    read = prompts(peer).source or prompts(peer).tokens
    found = expected.generate(
        read.ids,
        attention_mask=read.real.long(),
        num_beams=beams,
        early_stopping=False,
        length_penalty=1.0,
        max_new_tokens=limit,
        do_sample=False,
        use_cache=not peer.model.startswith("T5"),  # their cache is as deep as T5's encoder
        pad_token_id=PAD,
        eos_token_id=end,
        decoder_start_token_id=START if cross(peer) else None,
    )
    texts = [row[1 if cross(peer) else read.ids.shape[1] :] for row in found.tolist()]
    return [tuple(text[: text.index(end) + 1] if end in text else text) for text in texts]


@pytest.mark.parametrize("beams", [1, 4])
def test_greedy_and_beam_texts_equal_transformers(pair, beams):
    peer, expected, own = pair
    lengths, strategy = set(), Greedy() if beams == 1 else Beam(beams)
    free = generate(own, prompts(peer), strategy, Stop(PAD, 13))
    for end in sorted(
        {one.ids[place] for one in free for place in (1, 4, 8) if place < len(one.ids)}
    ):  # so that texts do end
        found = [one.ids for one in generate(own, prompts(peer), strategy, Stop(end, 13))]
        wanted = their_texts(peer, expected, end, beams, 13)
        assert [text[:13] for text in found] == wanted
        lengths |= {len(text) for text in found}
    assert len(lengths) > 1


@torch.no_grad()
def test_steps_with_a_cache_give_what_one_pass_gives(pair):
    peer, _, own = pair
    inputs = our_inputs(peer, "right")
    wanted = own(inputs)
    row = 1  # shorter than its neighbours, so it is padded in the pass
    text = (ANSWERS if cross(peer) else TEXTS)[row]
    source = None if inputs.source is None else Padded.of([TEXTS[row]])
    state = own.start(Inputs(Padded.of([text[:1]]), source))
    for place, token in enumerate(text):
        logits, state = own.step(torch.tensor([token]), state)
        assert_close(logits[0], wanted[row, place], 1e-9)


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), [(0.7, 9, 0.8), (1.3, None, 0.6), (1.0, 5, None)])
@torch.no_grad()
def test_what_sampling_draws_from_is_what_transformers_draws_from(pair, temperature, top_k, top_p):
    peer, _, own = pair
    logits = own(our_inputs(peer, "right"))[0, :3]
    steps = [transformers.TemperatureLogitsWarper(temperature)]
    steps += [transformers.TopKLogitsWarper(top_k)] if top_k else []
    steps += [transformers.TopPLogitsWarper(top_p)] if top_p else []
    wanted = logits
    for step in steps:
        wanted = step(None, wanted)
    found = divided(logits, temperature)
    found = found if top_k is None else among(found, top_k)
    found = found if top_p is None else reaching(found, top_p)
    assert_close(found.softmax(-1), wanted.softmax(-1), 1e-9)


@pytest.mark.parametrize("name", ["mistral", "qwen2 with windows", "qwen3 with windows and biases", "gemma2", "gemma3"])
def test_what_is_written_beyond_the_window_is_what_transformers_writes_with_its_cache(name, tmp_path):
    peer = PEERS[name]
    window, limit = peer.values["sliding_window"], 19
    expected = peer.build()  # eager: their other kernels leave out Gemma 2's cap
    own = read_model(saved(expected, tmp_path)).double()
    expected = expected.double()
    for text in TEXTS:
        assert len(text) + limit > 4 * window
        ids = torch.tensor([text])
        how = {"max_new_tokens": limit, "do_sample": False, "pad_token_id": PAD, "eos_token_id": NEVER}
        wanted = expected.generate(ids, attention_mask=torch.ones_like(ids), **how)[0, len(text) :]
        found = generate(own, Inputs(Padded.of([text])), Greedy(), Stop(NEVER, limit))
        assert list(found[0].ids) == wanted.tolist()
