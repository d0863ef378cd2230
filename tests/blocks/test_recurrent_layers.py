"""Recurrent layers over padded texts equal PyTorch's, one unpadded text at a time; steps equal whole texts."""

import pytest
import torch
from torch import Tensor, nn

from regard.blocks.recurrent import CELLS, LAYERS, STATES, ContextCells, RecurrentStack, init_recurrent
from regard.data.batching import Padded

CELL_KINDS = tuple(LAYERS)
every_cell = pytest.mark.parametrize("cell", CELL_KINDS)
LENGTHS = (5, 2, 7, 1)


def ids(lengths: tuple[int, ...], side: str) -> Padded:
    return Padded.of([[1] * length for length in lengths], side=side)


def torch_layers(stack: RecurrentStack, cell: str, inputs: int, width: int, bidirectional: bool) -> nn.Module:
    """PyTorch's own stack with the same weights."""
    layers = len(stack.layers)
    peer = LAYERS[cell](inputs, width, layers, batch_first=True, bidirectional=bidirectional).double()
    with torch.no_grad():
        for index, layer in enumerate(stack.layers):
            for name, weight in layer.named_parameters():
                peer.get_parameter(name.replace("_l0", f"_l{index}")).copy_(weight)
    return peer


@every_cell
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("side", ["right", "left"])
def test_a_padded_batch_equals_pytorchs_layers_text_by_text_with_gradients(cell, bidirectional, side):
    torch.manual_seed(0)
    stack = RecurrentStack(cell, 3, 5, 2, 0.0, bidirectional=bidirectional).double()
    peer = torch_layers(stack, cell, 3, 5, bidirectional)
    padded = ids(LENGTHS, side)
    inputs = torch.randn(4, 7, 3, dtype=torch.float64, requires_grad=True)
    out, states = stack(inputs, padded=padded)
    assert len(states) == STATES[cell]
    alone = [inputs[row][real][None] for row, real in enumerate(padded.real)]
    found = [peer(text) for text in alone]
    for row, real in enumerate(padded.real):
        torch.testing.assert_close(out[row][real], found[row][0][0])
        assert not out[row][~real].any()
        last = found[row][1] if isinstance(found[row][1], tuple) else (found[row][1],)
        for actual, other in zip(states, last, strict=True):
            torch.testing.assert_close(actual[:, row], other[:, 0])
    direction = torch.randn(out.shape, dtype=torch.float64)
    (mine,) = torch.autograd.grad((out * direction).sum(), inputs, retain_graph=True)
    wanted = sum((found[row][0][0] * direction[row][real]).sum() for row, real in enumerate(padded.real))
    torch.testing.assert_close(mine, torch.autograd.grad(wanted, inputs)[0])


@every_cell
@pytest.mark.parametrize("side", ["right", "left"])
def test_a_text_of_no_tokens_leaves_its_state_and_the_others_go_on_from_their_own(cell, side):
    torch.manual_seed(0)
    stack = RecurrentStack(cell, 3, 5, 2, 0.0).double()
    before = tuple(torch.randn(2, 3, 5, dtype=torch.float64) for _ in range(STATES[cell]))
    padded, inputs = ids((2, 0, 3), side), torch.randn(3, 3, 3, dtype=torch.float64)
    _, after = stack(inputs, before, padded)
    for row, real in enumerate(padded.real):
        start = tuple(one[:, row : row + 1].contiguous() for one in before)
        expected = stack(inputs[row][real][None], start)[1] if real.any() else start
        for actual, other in zip(after, expected, strict=True):
            torch.testing.assert_close(actual[:, row], other[:, 0])


@every_cell
def test_steps_of_cells_with_a_context_equal_pytorchs_cells(cell):
    torch.manual_seed(0)
    cells = ContextCells(cell, 3, 7, 5, 2, 0.0).double()
    peer = [CELLS[cell](10, 5).double(), CELLS[cell](5, 5).double()]
    for mine, other in zip(cells.cells, peer, strict=True):
        weights = mine.state_dict()
        if mine is cells.cells[0]:
            weights["weight_ih"] = torch.cat((weights["weight_ih"], cells.of_context.weight), dim=1)
        other.load_state_dict(weights)
    embedded, context = torch.randn(2, 4, 3, dtype=torch.float64), torch.randn(2, 7, dtype=torch.float64)
    state = tuple(torch.randn(2, 2, 5, dtype=torch.float64) for _ in range(STATES[cell]))
    after = cells(cells.read(embedded)[:, 1], context, list(zip(*state, strict=True)))
    below: Tensor = torch.cat((embedded[:, 1], context), dim=-1)
    for layer, one in enumerate(peer):
        own = tuple(part[layer] for part in state)
        found = one(below, own if cell == "lstm" else own[0])
        found = found if cell == "lstm" else (found,)
        for actual, other in zip(after[layer], found, strict=True):
            torch.testing.assert_close(actual, other)
        below = found[0]


@every_cell
def test_dropout_stands_between_layers_and_only_while_training(cell):
    torch.manual_seed(0)
    stack, inputs = RecurrentStack(cell, 3, 5, 2, 0.5), torch.randn(2, 7, 3)
    lower = stack.layers[0](inputs)[0]
    first, second = stack(inputs)[1][0], stack(inputs)[1][0]
    torch.testing.assert_close(first[0], lower[:, -1])  # of the layer below, nothing is dropped
    assert not torch.equal(first[1], second[1])
    stack.eval()
    assert torch.equal(stack(inputs)[0], stack(inputs)[0])


@every_cell
def test_recurrent_matrices_begin_orthogonal_and_an_lstm_by_remembering(cell):
    stack = RecurrentStack(cell, 3, 5, 2, 0.0, bidirectional=True)
    init_recurrent(stack)
    for name, parameter in stack.named_parameters():
        for gate in parameter.data.split(5):
            if "weight_hh" in name:
                torch.testing.assert_close(gate @ gate.T, torch.eye(5))
    layer = stack.layers[1]
    biases = (layer.bias_ih_l0 + layer.bias_hh_l0).detach().split(5)
    assert [float(gate.unique()) for gate in biases] == ([0, 1, 0, 0] if cell == "lstm" else [0] * len(biases))


@every_cell
def test_stepping_cells_begin_as_layers_do_and_the_context_as_an_input_gate_by_gate(cell):
    torch.manual_seed(0)
    cells = ContextCells(cell, 3, 7, 5, 2, 0.0)
    init_recurrent(cells)
    for one in cells.cells:
        for gate in one.weight_hh.data.split(5):
            torch.testing.assert_close(gate @ gate.T, torch.eye(5))
        biases = (one.bias_ih + one.bias_hh).detach().split(5)
        assert [float(gate.unique()) for gate in biases] == ([0, 1, 0, 0] if cell == "lstm" else [0] * len(biases))
    for gate in cells.of_context.weight.data.split(5):
        largest = float(gate.abs().max())
        assert (
            7**-0.5 < largest <= (6 / (5 + 7)) ** 0.5
        )  # beyond what PyTorch draws a linear layer from, within Glorot's
