"""Planted heads are named for what they do, and every measure is what a loop over the weights gives."""

import math

import pytest
import torch
from torch import Tensor

from regard.attention.cache import KeyValues
from regard.attention.mask import Causal
from regard.attention.similarity import Dot
from regard.attention.slot import Site
from regard.data.batching import Inputs, Padded
from regard.data.grammar import ACROSS, NOUN_DETERMINER, PRONOUN_ANTECEDENT, RELATIONS, best_offset, sentences
from regard.errors import InputError
from regard.inspection.arcs import find_arcs
from regard.inspection.capture import Recording, record_into, watch_module
from regard.inspection.head_report import half_length, random_twice, repeated_tokens
from regard.inspection.heads import measure_heads, repeated_induction
from regard.inspection.trace import Forward
from regard.models.config import TransformerConfig
from regard.models.network import NETWORKS
from regard.models.transformer import Transformer
from regard.text.tokenizer import Tokenizer
from rounding import assert_close

LAYER, SINK = "decoder.0.self", 0.8


def planted(ids: list[int], wanted: Tensor, *, causal: bool = True, layers: int = 1) -> Recording:
    """What would have been seen of heads that attend so: the scores are log w, from queries times an identity."""
    heads, tokens, _ = wanted.shape
    keys = torch.eye(tokens).expand(1, heads, -1, -1)
    seen = Recording()
    seen.forwards.append(Forward(inputs=Inputs(Padded.of([ids])), closed=True))
    stack = "decoder" if causal else "encoder"
    with record_into(seen, torch.nn.MultiheadAttention(4, 2)):
        seen._open = seen.forwards[-1]
        for index in range(layers):
            site = Site(stack, index, "self")
            given = {"query": wanted.clamp(min=1e-30).log()[None], "memory": KeyValues(keys, keys), "bias": None}
            given |= {"mask": Causal() if causal else None, "query_positions": None}
            seen.record(str(site), Dot(), given, site)
    return seen


def rows_to(target: dict[int, int], tokens: int, sink: float = SINK) -> Tensor:
    """Rows that give the sink its share and the rest to one token each, or everything to the sink."""
    rows = torch.zeros(tokens, tokens)
    for row in range(tokens):
        if row in target and target[row] > 0:
            rows[row, 0], rows[row, target[row]] = sink, 1 - sink
        else:
            rows[row, 0] = 1.0
    return rows


TWICE = [0, 5, 8, 3, 7, 9, 5, 8, 3, 7, 9]


def test_planted_heads_are_named_although_a_sink_takes_most_of_each():
    tokens = len(TWICE)
    previous = rows_to({row: row - 1 for row in range(2, tokens)}, tokens)
    induction = rows_to({row: row - 4 for row in range(6, tokens)}, tokens)
    same = rows_to({row: row - 5 for row in range(6, tokens)}, tokens)
    even = torch.ones(tokens, tokens).tril()
    wanted = torch.stack([previous, induction, same, rows_to({}, tokens), even / even.sum(dim=-1, keepdim=True)])
    found = measure_heads(planted(TWICE, wanted))
    assert [one.character for one in found] == ["previous token", "induction", "same word", "sink", "mixed"]
    assert found[0].sink == pytest.approx((1 + 9 * SINK) / 10)  # the token after the first has the first alone
    assert (found[0].previous, found[0].distance, found[0].entropy) == pytest.approx((1, 1, 0), abs=1e-5)
    assert (found[1].induction, found[1].distance) == pytest.approx((1, 4), abs=1e-4)
    assert found[2].same == pytest.approx(1, abs=1e-5)
    shares = repeated_induction(planted(TWICE, wanted), half=5)
    assert [shares[LAYER, head] for head in range(3)] == pytest.approx([0, 1, 0], abs=1e-5)


def test_a_head_that_looks_ahead_is_named_in_an_encoder():
    wanted = torch.zeros(1, 7, 7)
    wanted[0, torch.arange(6), torch.arange(1, 7)] = 1.0
    wanted[0, 6, 0] = 1.0
    [found] = measure_heads(planted([1, 2, 3, 4, 5, 6, 7], wanted, causal=False))
    assert (found.character, found.following) == ("next token", pytest.approx(1, abs=1e-5))


def by_hand(maps: Tensor, ids: list[int], special: set[int]) -> dict[str, float]:
    """One head, row by row."""
    sums: dict[str, list[tuple[float, float]]] = {}
    for row, weights in enumerate(maps.double().tolist()):
        if row == 0 or ids[row] in special:
            continue
        kept = {key: w for key, w in enumerate(weights) if key > 0 and ids[key] not in special}
        rest = sum(kept.values())
        share = {key: w / rest for key, w in kept.items()}
        sums.setdefault("sink", []).append((weights[0], 1.0))
        others = sum(w for key, w in enumerate(weights) if key > 0 and ids[key] in special)
        sums.setdefault("special", []).append((others, 1.0))
        sums.setdefault("entropy", []).append((-sum(w * math.log(w) for w in share.values() if w > 0), rest))
        sums.setdefault("distance", []).append((sum(abs(row - key) * w for key, w in share.items()), rest))
        if row > 1:
            sums.setdefault("previous", []).append((share.get(row - 1, 0.0), rest))
        like = [key for key in share if ids[key] == ids[row] and key != row and weights[key] > 0]
        if any(ids[key] == ids[row] and key != row and weights[key] > 0 for key in range(len(ids))):
            sums.setdefault("same", []).append((sum(share[key] for key in like), rest))
        after = [key for key in range(1, len(ids)) if ids[key - 1] == ids[row] and key - 1 < row and weights[key] > 0]
        if after:
            sums.setdefault("induction", []).append((sum(share.get(key, 0.0) for key in after), rest))
    return {name: sum(v * c for v, c in many) / sum(c for _, c in many) for name, many in sums.items()}


@pytest.mark.parametrize("architecture", ["decoder", "encoder"])
def test_the_measures_are_those_of_a_loop_over_the_weights(architecture):
    config = TransformerConfig(vocabulary=11, width=12, heads=3, layers=2, architecture=architecture)
    model = Transformer(config).double().eval()
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            parameter.mul_(4.0 if ".query." in path or ".key." in path else 1.0)
    ids = [2, 5, 6, 5, 9, 1, 6, 5, 3, 6, 1]
    with watch_module(model) as seen, torch.no_grad():
        model(Inputs(Padded.of([ids])))
    for found in measure_heads(seen, special=[1, 2]):
        expected = by_hand(seen.weights(found.layer, found.head), ids, {1, 2})
        assert {name: getattr(found, name) for name in expected} == pytest.approx(expected, abs=1e-9)


def test_texts_and_tiles_are_taken_together(monkeypatch):
    ids = [2, 5, 6, 5, 9, 7, 6, 5, 3]
    torch.manual_seed(1)
    wanted = torch.rand(2, 9, 9).tril() + 1e-3
    wanted = wanted.tril() / wanted.tril().sum(dim=-1, keepdim=True)
    whole = measure_heads(planted(ids, wanted))
    monkeypatch.setattr("regard.inspection.trace.TILE", 2 * 9 * 2)
    tiled = measure_heads(planted(ids, wanted))
    twice = planted(ids, wanted)
    twice.forwards += planted(ids, wanted).forwards
    for one, other, both in zip(whole, tiled, measure_heads(twice), strict=True):
        numbers = [getattr(one, name) for name in ("sink", "entropy", "distance", "previous", "same", "induction")]
        for again in (other, both):
            found = [getattr(again, name) for name in ("sink", "entropy", "distance", "previous", "same", "induction")]
            assert found == pytest.approx(numbers, abs=1e-7)


def test_across_two_texts_nothing_is_said_of_places():
    model = NETWORKS["bahdanau"].config(vocabulary=7, width=5, similarity="additive").build().eval()
    with watch_module(model) as seen, torch.no_grad():
        model(Inputs(Padded.of([[1, 2, 3]]), Padded.of([[4, 2, 3, 5]])))
    [found] = measure_heads(seen)
    assert (found.distance, found.previous, found.following, found.induction) == (None,) * 4
    maps = seen.weights(found.layer, 0)
    assert found.sink == pytest.approx(float(maps[:, 0].mean()))
    rest = maps[1:, 1:].sum(dim=-1)
    expected = (maps[1, 1] + maps[2, 2]) / rest.sum()
    assert found.same == pytest.approx(float(expected), abs=1e-6)


def test_nothing_seen_is_refused():
    with pytest.raises(InputError, match="nothing was seen"):
        measure_heads(Recording())


# Random tokens that come twice


def test_random_tokens_come_twice_fit_the_model_and_are_none_of_the_special_ones():
    tokenizer = Tokenizer.train(["the old farmers near the tree"] * 3, 270)
    config = TransformerConfig(
        vocabulary=tokenizer.size,
        width=8,
        heads=2,
        layers=1,
        architecture="decoder",
        positions="learned",
        max_positions=12,
    )
    model = Transformer(config).eval()
    half = half_length(model, tokenizer)
    assert half == 5
    for row in random_twice(tokenizer, half, 3, seed=0):
        assert row[0] == tokenizer.bos_id
        assert row[1:6] == row[6:]
        assert len({*row[1:]} - {*tokenizer.special_ids.values()}) == half
    shares = repeated_tokens(model, tokenizer)
    assert set(shares) == {(LAYER, 0), (LAYER, 1)}
    assert all(0 < share < 1 for share in shares.values())


# The grammar


def test_the_arcs_of_the_grammar_are_what_the_words_say():
    parsed = sentences(200, seed=3)
    assert {arc.relation for one in parsed for arc in one.arcs} == set(RELATIONS)
    for one in parsed:
        assert " ".join(one.words) + "." == one.text
        assert all(arc.dependent > 0 and arc.head > 0 for arc in one.arcs)
        for arc in one.arcs:
            dependent, head = one.words[arc.dependent], one.words[arc.head]
            if arc.relation == NOUN_DETERMINER:
                assert head == "the"
                assert "the" not in one.words[arc.head + 1 : arc.dependent]
            elif arc.relation == PRONOUN_ANTECEDENT:
                nouns = [one.words[other.dependent] for other in one.arcs if other.relation == NOUN_DETERMINER]
                assert head in nouns
                if dependent == "they":  # it is the only noun of its number
                    assert [noun for noun in nouns if noun.endswith("s")] == [head]
                elif dependent == "it":
                    assert [noun for noun in nouns if noun in ("tree", "car", "bird", "house", "river", "table")] == [
                        head
                    ]
            else:
                assert dependent.endswith("s") is not head.endswith("s")  # they agree
            if arc.relation == ACROSS:
                between = one.words[arc.head + 1 : arc.dependent]
                assert any(word.endswith("s") is dependent.endswith("s") for word in between)
    assert all(best_offset(parsed, relation)[1] < 0.7 for relation in RELATIONS)


def test_a_head_that_knows_the_arcs_finds_them_all_and_one_that_looks_back_finds_what_its_offset_does():
    parsed = sentences(30, seed=1)
    tokenizer = Tokenizer.train([one.text for one in parsed], 330)
    whole = Recording()
    for one in parsed:
        ids, offsets = tokenizer.encode(one.text), tokenizer.offsets(one.text)
        places = [[at for at, (a, b) in enumerate(offsets) if a < end and b > begin] for begin, end in one.spans]
        tokens = len(ids) + 1
        wanted = torch.zeros(2, tokens, tokens)
        wanted[:, :, 0] = SINK
        for arc in one.arcs:
            wanted[0, [1 + at for at in places[arc.dependent]], 1 + places[arc.head][-1]] = 1 - SINK
        for word in range(1, len(places)):
            wanted[1, [1 + at for at in places[word]], 1 + places[word - 1][0]] = 1 - SINK
        whole.forwards += planted([tokenizer.bos_id, *ids], wanted, causal=True).forwards
    report = find_arcs(whole, tokenizer, parsed)
    for known in report.baselines:
        shares = {one.head: one.share for one in report.shares if one.relation == known.relation}
        offsets = [arc.head - arc.dependent for one in parsed for arc in one.arcs if arc.relation == known.relation]
        assert (shares[0], shares[1]) == (1.0, pytest.approx(offsets.count(-1) / len(offsets)))
        assert report.best(known.relation).head == 0
        assert known.share == max(offsets.count(offset) for offset in offsets) / len(offsets)


def test_half_precision_is_measured_like_the_same_weights():
    config = TransformerConfig(vocabulary=11, width=12, heads=3, layers=1, architecture="decoder")
    model = Transformer(config).to(torch.bfloat16).eval()
    with watch_module(model) as seen, torch.no_grad():
        model(Inputs(Padded.of([[2, 5, 6, 5, 9]])))
    for found in measure_heads(seen):
        maps = seen.weights(found.layer, found.head).double()
        maps = maps / maps.sum(dim=-1, keepdim=True)
        assert_close(torch.tensor(found.sink).double(), maps[1:, 0].mean())


def test_of_a_long_text_the_rows_that_are_looked_at_are_measured_alone():
    tokens = len(TWICE)
    even = torch.ones(tokens, tokens).tril()
    wanted = torch.stack(
        [rows_to({row: row - 1 for row in range(2, tokens)}, tokens), even / even.sum(-1, keepdim=True)]
    )
    seen, most = planted(TWICE, wanted), 4
    read = [row for row in (at * tokens // most for at in range(most)) if row]  # the first is never counted
    for found, map in zip(measure_heads(seen, most_rows=most), wanted, strict=True):
        assert found.sink == pytest.approx(float(map[read, 0].mean()), abs=1e-6)
        left = map[read, 1:] / map[read, 1:].sum(dim=1, keepdim=True)
        weight = map[read, 1:].sum(dim=1)
        entropy = (torch.special.entr(left).sum(dim=1) * weight).sum() / weight.sum()
        assert found.entropy == pytest.approx(float(entropy), abs=1e-5)
