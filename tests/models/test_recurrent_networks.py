"""Recurrent sequence-to-sequence equals the equations of its papers, written out step by step and text by text."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from regard.attention.similarity import SIMILARITIES
from regard.data.batching import Inputs, Padded
from regard.errors import ConfigError, InputError
from regard.layers.dropout import Dropout
from regard.models.network import NETWORKS, Network

WIDTH, EMBEDDING, VOCABULARY = 5, 3, 11
CELLS = ("rnn", "lstm", "gru")
Weights = dict[str, Tensor]


def build(name: str, **options: object) -> Network:
    torch.manual_seed(0)
    sizes = {"vocabulary": VOCABULARY, "width": WIDTH, "embedding_width": EMBEDDING} | options
    model = NETWORKS[name].config(**sizes).build().double().eval()
    with torch.no_grad():
        for parameter in model.parameters():  # biases too: they begin at zero
            parameter.add_(torch.randn_like(parameter) * 0.4)
    return model


def texts(lengths: tuple[int, ...], seed: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(VOCABULARY, (length,), generator=generator).tolist() for length in lengths]


TARGETS, SOURCES = texts((4, 2, 5), 1), texts((3, 6, 1), 2)


# The oracle


def cell_step(kind: str, own: Weights, suffix: str, below: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Elman 1990; Hochreiter and Schmidhuber 1997 with a forget gate; Cho et al. 2014 as PyTorch orders its gates."""
    names = (f"{part}_{which}{suffix}" for part in ("weight", "bias") for which in ("ih", "hh"))
    of_input, of_hidden, input_bias, hidden_bias = (own[name] for name in names)
    left = (of_input @ below + input_bias).reshape(-1, WIDTH)
    right = (of_hidden @ state[0] + hidden_bias).reshape(-1, WIDTH)
    if kind == "rnn":
        return (torch.tanh(left[0] + right[0]),)
    if kind == "gru":
        reset, update = torch.sigmoid(left[0] + right[0]), torch.sigmoid(left[1] + right[1])
        return ((1 - update) * torch.tanh(left[2] + reset * right[2]) + update * state[0],)
    enter, forget, new, out = left + right
    cells = torch.sigmoid(forget) * state[1] + torch.sigmoid(enter) * torch.tanh(new)
    return torch.sigmoid(out) * torch.tanh(cells), cells


def weights_below(model: Network, path: str) -> Weights:
    return {name.removeprefix(path): one for name, one in model.named_parameters() if name.startswith(path)}


def read_source(model: Network, source: list[int]) -> tuple[Tensor, list[Tensor]]:
    """The encoder's vectors, and its last state in each direction."""
    config = model.config
    stream = [model.embedding(torch.tensor([[token]]))[0, 0] for token in source]
    ends: list[Tensor] = []
    for layer in range(config.layers):
        own, columns, ends = weights_below(model, f"encoder.layers.{layer}."), [], []
        for suffix in ("_l0", "_l0_reverse")[: 1 + config.bidirectional]:
            state = tuple(torch.zeros(WIDTH, dtype=torch.float64) for _ in range(2 if config.cell == "lstm" else 1))
            found = []
            for below in stream[::-1] if suffix == "_l0_reverse" else stream:
                state = cell_step(config.cell, own, suffix, below, state)
                found.append(state[0])
            columns.append(found[::-1] if suffix == "_l0_reverse" else found)
            ends.append(state[0])
        stream = [torch.cat(parts) for parts in zip(*columns, strict=True)]
    return torch.stack(stream), ends


def first_states(model: Network, end: Tensor) -> list[tuple[Tensor, ...]]:
    """tanh(W · end), for every layer; of an LSTM the hidden vectors of all layers first."""
    made = torch.tanh(model.first.weight @ end + model.first.bias).reshape(-1, model.config.layers, WIDTH)
    return [tuple(one[layer] for one in made) for layer in range(model.config.layers)]


def score(model: Network, query: Tensor, key: Tensor) -> Tensor:
    """Of one state of the decoder and one of the encoder."""
    kind, mapped = model.config.similarity, model.alignment.keys
    compare = model.alignment.attend.similarity
    if kind == "additive":
        return compare.direction @ torch.tanh(compare.of_query.weight @ query + mapped.weight @ key)
    if kind == "general" or len(key) != len(query):
        key = mapped.weight @ key
    if kind == "scaled_dot":
        return (query * key).sum() / len(query) ** 0.5
    return (query * key).sum() / (query.norm() * key.norm() if kind == "cosine" else 1.0)


def align(model: Network, query: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    """The weights of all of the source's places, and the context."""
    exponentials = torch.stack([score(model, query, key) for key in memory]).exp()
    weights = exponentials / exponentials.sum()
    return weights, sum(weight * value for weight, value in zip(weights, memory, strict=True))


def by_hand(model: Network, target: list[int], source: list[int]) -> tuple[Tensor, Tensor]:
    """The logits after every token, and the alignment `[target, source]`."""
    config, name = model.config, model.config.name
    memory, ends = read_source(model, source)
    context, cells = torch.zeros(0), "decoder.cells" if name == "bahdanau" else "decoder.layers"
    end = ends[-1] if name == "bahdanau" else torch.cat(ends)
    if name == "seq2seq":
        end = context = torch.tanh(model.context.weight @ end + model.context.bias)
    states = first_states(model, end)
    logits, alignment = [], []
    for token in target:
        embedded = model.embedding(torch.tensor([[token]]))[0, 0]
        if name == "bahdanau":
            weights, context = align(model, states[-1][0], memory)
        below = embedded if name == "luong" else torch.cat((embedded, context))
        for layer in range(config.layers):
            suffix = "" if name == "bahdanau" else "_l0"
            own = weights_below(model, f"{cells}.{layer}.")
            if name == "bahdanau" and layer == 0:
                own["weight_ih"] = torch.cat((own["weight_ih"], model.decoder.of_context.weight), dim=1)
            states[layer] = cell_step(config.cell, own, suffix, below, states[layer])
            below = states[layer][0]
        if name == "luong":
            weights, context = align(model, below, memory)
        parts = (context, below) if name == "luong" else (below, embedded, context)
        read = torch.tanh(model.readout.weight @ torch.cat(parts) + model.readout.bias)
        logits.append((model.embedding.weight if model.output is None else model.output.weight) @ read)
        alignment += [weights] if name != "seq2seq" else []
    return torch.stack(logits), torch.stack(alignment) if alignment else torch.zeros(0)


CASES = [("seq2seq", cell, None) for cell in CELLS]
CASES += [(name, cell, similarity) for name in ("bahdanau", "luong") for cell in CELLS for similarity in SIMILARITIES]


@pytest.mark.parametrize(("name", "cell", "similarity"), CASES)
def test_a_network_equals_its_papers_equations_with_gradients(name, cell, similarity):
    number = CASES.index((name, cell, similarity))
    attention = {} if similarity is None else {"similarity": similarity}
    options = {"bidirectional": number % 2 == 0, "layers": 1 + number % 3 % 2, "tie_embeddings": number % 4 < 2}
    model = build(name, cell=cell, **options, **attention)
    found = model(Inputs(Padded.of(TARGETS), Padded.of(SOURCES)))
    expected = [by_hand(model, *pair)[0] for pair in zip(TARGETS, SOURCES, strict=True)]
    directions = [torch.randn(logits.shape, dtype=torch.float64) for logits in expected]
    actual = wanted = torch.zeros((), dtype=torch.float64)
    for row, (logits, direction) in enumerate(zip(expected, directions, strict=True)):
        torch.testing.assert_close(found[row, : len(logits)], logits, rtol=0, atol=1e-12)
        actual = actual + (found[row, : len(logits)] * direction).sum()
        wanted = wanted + (logits * direction).sum()
    parameters = list(model.parameters())
    for mine, peer in zip(
        torch.autograd.grad(actual, parameters), torch.autograd.grad(wanted, parameters), strict=True
    ):
        torch.testing.assert_close(mine, peer, rtol=0, atol=1e-11)


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_equal_widths_compare_the_encoders_states_as_they_are_unless_the_similarity_maps_them(similarity):
    model = build("luong", similarity=similarity, bidirectional=False)
    maps = any(True for _ in model.alignment.keys.parameters())
    assert maps == (similarity in ("general", "additive"))


# What a state is


@pytest.mark.parametrize("name", ["seq2seq", "bahdanau", "luong"])
@pytest.mark.parametrize("cell", CELLS)
def test_a_state_is_a_value_and_ragged_prompts_leave_no_trace(name, cell):
    model = build(name, cell=cell, layers=2)
    prompts = texts((3, 1, 4), 5)
    with torch.no_grad():
        for side in ("left", "right"):
            state = model.start(Inputs(Padded.of(prompts, side=side, fill=7), Padded.of(SOURCES, side=side)))
            kept = [one.clone() for one in state.cells]
            last = torch.tensor([prompt[-1] for prompt in prompts])
            first, _ = model.step(last, state)
            again, _ = model.step(last, state)
            assert torch.equal(first, again)
            assert all(torch.equal(one, other) for one, other in zip(state.cells, kept, strict=True))
            for row, pair in enumerate(zip(prompts, SOURCES, strict=True)):
                torch.testing.assert_close(first[row], by_hand(model, *pair)[0][-1], rtol=0, atol=1e-12)


def test_beams_that_change_places_within_a_sequence_leave_the_memory_where_it_is():
    model = build("bahdanau")
    state = model.start(Inputs(Padded.of([[1], [2]]), Padded.of(SOURCES[:2]))).select(torch.tensor([0, 0, 1, 1]))
    swapped = state.select(torch.tensor([1, 0, 3, 2]))
    assert swapped.memory is state.memory
    assert torch.equal(swapped.cells[0], state.cells[0][:, [1, 0, 3, 2]])
    assert state.select(torch.tensor([0, 2, 1, 3])).memory is not state.memory
    ids = torch.tensor([4, 5, 6, 7])
    logits, _ = model.step(ids, state)
    rows = torch.tensor([3, 0])  # each with its own source, of another length
    torch.testing.assert_close(model.step(ids[rows], state.select(rows))[0], logits[rows])


def test_loaded_weights_lie_in_memory_as_drawn_ones_do():
    """By where they lie, products of few rows round differently: what is loaded would not equal what was saved."""
    model = build("luong")
    shifted = {}
    for name, one in model.state_dict().items():
        shifted[name] = one.new_empty(one.numel() + 1)[1:].view(one.shape).copy_(one)
    assert all(one.data_ptr() % 64 for one in shifted.values())
    model.load_state_dict(shifted, assign=True)
    assert not any(parameter.data_ptr() % 64 for parameter in model.parameters())


# What is refused


def test_what_cannot_be_is_refused_in_a_sentence():
    model, other = build("bahdanau"), build("luong")
    tokens, source = Padded.of([[1, 2], [3]]), Padded.of([[1], [2, 3]])
    with pytest.raises(InputError, match="a source of no tokens"):
        model(Inputs(tokens, Padded.of([[1], []])))
    with pytest.raises(InputError, match="a source of no tokens"):
        model.start(Inputs(tokens, Padded.of([[], []])))
    with pytest.raises(InputError, match="a bahdanau network needs a source"):
        model(Inputs(tokens))
    state = other.start(Inputs(tokens, source))
    with pytest.raises(InputError, match="a bahdanau network cannot go on from the state of another"):
        model.step(torch.tensor([1, 1]), state)
    with pytest.raises(InputError, match="a bahdanau network cannot go on from the state of another"):
        model.extend(torch.tensor([[1], [1]]), None)
    packed = replace(tokens, documents=torch.ones_like(tokens.ids))
    with pytest.raises(InputError, match="packed rows"):
        model(Inputs(packed, source))


@pytest.mark.parametrize(("name", "key", "value"), [("seq2seq", "similarity", "dot"), ("luong", "heads", 2)])
def test_a_key_of_another_network_is_refused(name, key, value):
    with pytest.raises(ConfigError, match=key):
        NETWORKS[name].config(vocabulary=7, **{key: value})


def test_an_unknown_similarity_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'additive'"):
        NETWORKS["bahdanau"].config(vocabulary=7, similarity="aditive")


CHANGES = {
    "cell": "lstm",
    "layers": 2,
    "width": 7,
    "embedding_width": 7,
    "tie_embeddings": False,
    "similarity": "cosine",
}


@pytest.mark.parametrize("name", ["seq2seq", "bahdanau", "luong"])
def test_every_key_has_a_description_and_changes_what_is_computed(name):
    shape = NETWORKS[name].shape
    assert all(field.description for field in shape.model_fields.values())
    keys = set(shape.model_fields) - {"name", "vectors"}
    assert keys == {*CHANGES, "dropout", "bidirectional"} - ({"similarity"} if name == "seq2seq" else set())
    inputs = Inputs(Padded.of(TARGETS), Padded.of(SOURCES))
    usual = {"vocabulary": VOCABULARY, "width": WIDTH, "embedding_width": EMBEDDING, "dropout": 0.0}

    def logits(**options: object) -> Tensor:
        torch.manual_seed(1)
        model = NETWORKS[name].config(**usual | options).build()
        return model(inputs)

    plain = logits()
    backwards = not shape.model_fields["bidirectional"].default
    for key, value in {**CHANGES, "dropout": 0.5, "bidirectional": backwards}.items():
        if key in keys:
            assert not torch.equal(logits(**{key: value}), plain), key


@pytest.mark.parametrize("name", ["seq2seq", "bahdanau", "luong"])
def test_dropout_is_on_embeddings_between_layers_and_on_what_the_output_reads_while_training(name):
    shape = {"width": WIDTH, "embedding_width": EMBEDDING, "layers": 3, "bidirectional": True}
    model = NETWORKS[name].config(vocabulary=VOCABULARY, dropout=0.5, **shape).build()
    met: list[tuple[str, int]] = []
    for path, module in model.named_modules():
        if isinstance(module, Dropout):
            part = path.partition(".")[0]
            module.register_forward_hook(lambda _, given, out, part=part: met.append((part, out.shape[-1])))
    inputs = Inputs(Padded.of([[1, 2, 3, 4]]), Padded.of([[5, 6]]))
    hidden = model.hidden(inputs)
    below = [("decoder", WIDTH)] * 2 * (4 if name == "bahdanau" else 1)  # which goes step by step
    embedded = ("dropout", EMBEDDING)
    assert met == [embedded, *[("encoder", 2 * WIDTH)] * 2, embedded, *below, embedded]
    assert 0 < int((hidden == 0).sum()) < hidden.numel()
    assert torch.equal(model.eval().hidden(inputs), model.hidden(inputs))


@pytest.mark.parametrize("name", ["seq2seq", "bahdanau", "luong"])
@pytest.mark.parametrize("cell", CELLS)
def test_mixed_and_half_precision_are_near_float32(name, cell):
    model = build(name, cell=cell, layers=2).float()
    inputs = Inputs(Padded.of(TARGETS, side="left"), Padded.of(SOURCES))
    exact = model(inputs).detach()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = model(inputs)
    mixed.float().square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    half = model.to(torch.bfloat16)
    with torch.no_grad():
        found = half(inputs)
    for near in (mixed, found):
        assert float((near.detach().float() - exact).abs().max()) < 0.05 * float(exact.abs().max())
