"""The tiled cross-entropy against PyTorch's, in value and gradient, however large the table is."""

import pytest
import torch
from torch.nn import functional as F

from regard.data.batching import IGNORED
from regard.training import cross_entropy
from regard.training.cross_entropy import tiled_cross_entropy


def both(logits: torch.Tensor, targets: torch.Tensor, smoothing: float, upstream: float) -> tuple[torch.Tensor, ...]:
    """Sum and gradient by the tiles, then by PyTorch in float64."""
    one, other = logits.clone().requires_grad_(), logits.double().requires_grad_()
    own = tiled_cross_entropy(one, targets, smoothing)
    peer = F.cross_entropy(other, targets, ignore_index=IGNORED, reduction="sum", label_smoothing=smoothing)
    (own * upstream).backward()
    (peer * upstream).backward()
    return own.detach(), one.grad, peer.detach(), other.grad


@pytest.mark.parametrize("upstream", [1.0, 0.25])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("tile", [1, 53 * 3, 1 << 19])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_tiles_give_what_the_whole_table_gives(dtype, tile, smoothing, upstream, monkeypatch):
    monkeypatch.setattr(cross_entropy, "TILE", tile)
    torch.manual_seed(0)
    logits = (torch.randn(17, 53) * 4).to(dtype)
    targets = torch.randint(53, (17,))
    targets[[2, 3, 16]] = IGNORED
    own, gradient, peer, expected = both(logits, targets, smoothing, upstream)
    rounding = {torch.float64: 1e-13, torch.float32: 1e-6, torch.bfloat16: 1e-2}[dtype]
    assert float(own) == pytest.approx(float(peer), rel=1e-12 if dtype == torch.float64 else 1e-6)
    assert gradient.dtype == dtype
    torch.testing.assert_close(gradient.double(), expected, rtol=rounding, atol=rounding / 10)


def test_a_target_that_is_all_but_impossible_has_its_full_loss():
    logits = torch.tensor([[0.0, -300.0, 2.0], [1e4, 0.0, -1e4]])
    found, gradient, expected, _ = both(logits, torch.tensor([1, 2]), 0.0, 1.0)
    assert float(found) == pytest.approx(float(expected), rel=1e-6)
    assert torch.isfinite(gradient).all()


def test_what_is_not_a_number_stays_in_its_row_and_out_of_the_loss_where_it_is_ignored():
    logits = torch.randn(3, 5)
    logits[1] = torch.nan
    targets = torch.tensor([0, IGNORED, 4])
    own, gradient, _, _ = both(logits, targets, 0.1, 1.0)
    alone = F.cross_entropy(logits[[0, 2]], targets[[0, 2]], reduction="sum", label_smoothing=0.1)
    assert float(own) == pytest.approx(float(alone), rel=1e-6)
    assert (gradient[1] == 0).all()
    assert torch.isnan(tiled_cross_entropy(logits, torch.tensor([0, 2, 4])))
