"""`attend` against PyTorch's kernels called directly, and what watching costs.

window     a window of 256 at 8,192 tokens (CPU) or of 512 at 65,536 (GPU), forward and backward
short      bfloat16 training attention of short texts (CPU)
causal     half-precision causal attention against cuDNN and flash called directly (GPU)
watching   the memory that recording queries and keys adds to a long causal pass
"""

import resource
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.attention.core import attend, which_kernel
from regard.attention.mask import Causal, Mask, Window
from regard.bench.timing import Work, take_turns
from regard.data.batching import Inputs, Padded
from regard.inspection.capture import watch_module
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer

Row = dict[str, Any]


def rows(device: str) -> Iterator[Row]:
    """All figures for this device."""
    if device == "cuda":
        yield from causal_on_gpu()
        yield from window_on_gpu()
    else:
        yield from watching()  # first: a child process counts its parent's peak as its own
        yield from window_on_cpu()
        yield from short_on_cpu()


def watching() -> Iterator[Row]:
    """Peak memory of a causal pass, alone and watched, against the bytes of the queries and keys that are kept."""
    for tokens in (8192, 16384):
        alone, _ = _in_a_process_of_its_own(tokens, watched=False)
        watched, kept = _in_a_process_of_its_own(tokens, watched=True)
        row = {"what": f"watching {tokens} tokens, 2 layers × 256, float32", "contestant": "regard"}
        yield row | {
            "bytes_kept": kept,
            "extra_peak_bytes": watched - alone,
            "ratio": round((watched - alone) / kept, 3),
        }


def _in_a_process_of_its_own(tokens: int, *, watched: bool) -> tuple[int, int]:
    """Peak memory of a fresh process that runs the model once, and the bytes its capture keeps."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_peak, tokens, watched).result()


def _peak(tokens: int, watched: bool) -> tuple[int, int]:
    torch.manual_seed(0)
    shape = {"width": 256, "heads": 4, "layers": 2, "architecture": "decoder", "dropout": 0.0}
    model = Transformer(TransformerConfig(vocabulary=64, **shape)).eval()
    inputs = Inputs(Padded.of([torch.randint(64, (tokens,)).tolist()]))
    kept = 0
    with torch.no_grad():
        if watched:
            with watch_module(model) as seen:
                model(inputs)
            calls = [call for layer in seen.layers for call in seen.trace(layer).exact]
            kept = sum(one.nbytes for call in calls for one in (call.query, call.new_keys))
        else:
            model(inputs)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, kept


def window_on_cpu() -> Iterator[Row]:
    """A window of 256 at 8,192 tokens, 4 heads of 64."""
    query, key, value = tensors((1, 4, 8192, 64), torch.float32, "cpu")
    for name, mask in {"window 256": Window(256), "causal window 256": Causal() & Window(256)}.items():
        table = mask.dense((1, 4, 8192, 8192), query.device)
        timed = take_turns(
            {
                "regard": training(partial(attend, query, key, value, mask=mask)),
                "sdpa, dense mask": training(
                    partial(F.scaled_dot_product_attention, query, key, value, attn_mask=table)
                ),
                "sdpa, causal flag": training(
                    partial(F.scaled_dot_product_attention, query, key, value, is_causal=True)
                ),
            },
            rounds=3,
        )
        kernel = which_kernel(query, key, value, mask=mask).name
        yield from compared(f"{name}, 8192 tokens, float32, forward+backward", timed, kernel)


def short_on_cpu() -> Iterator[Row]:
    """Training attention in bfloat16, 8 heads of 64 (the base model of the 2017 paper), 4,096 tokens in all."""
    for tokens in (64, 128, 256, 512):
        query, key, value = tensors((4096 // tokens, 8, tokens, 64), torch.bfloat16, "cpu")
        for name, mask in {"no mask": None, "causal": Causal()}.items():
            flag = mask is not None
            timed = take_turns(
                {
                    "regard": training(partial(attend, query, key, value, mask=mask)),
                    "sdpa": training(partial(F.scaled_dot_product_attention, query, key, value, is_causal=flag)),
                },
                rounds=15,
            )
            kernel = which_kernel(query, key, value, mask=mask).name
            yield from compared(f"{name}, {tokens} tokens, bfloat16, forward+backward", timed, kernel)


def causal_on_gpu() -> Iterator[Row]:
    """Causal attention of 16,384 tokens in all, width 2,048, bfloat16."""
    for width in (64, 128):
        for tokens in (1024, 2048, 4096, 8192, 16384):
            shape = (16384 // tokens, 2048 // width, tokens, width)
            query, key, value = tensors(shape, torch.bfloat16, "cuda")
            for direction in ("forward", "forward+backward"):
                wrap = training if direction != "forward" else forward
                timed = take_turns(
                    {
                        "regard": wrap(partial(attend, query, key, value, mask=Causal())),
                        "cudnn": wrap(partial(_direct, query, key, value, SDPBackend.CUDNN_ATTENTION)),
                        "flash": wrap(partial(_direct, query, key, value, SDPBackend.FLASH_ATTENTION)),
                    },
                    rounds=11,
                    warm_up=5,
                    inner=50,
                )
                work = (2 if direction == "forward" else 7) * shape[0] * shape[1] * tokens**2 * width
                kernel = which_kernel(query, key, value, mask=Causal()).name
                for row in compared(f"causal, {tokens} tokens, heads of {width}, bfloat16, {direction}", timed, kernel):
                    yield row | {"teraflops": round(work / row["milliseconds"] / 1e9, 1)}


def window_on_gpu() -> Iterator[Row]:
    """A causal window of 512 at 65,536 tokens, 16 heads of 64, bfloat16; and the memory its mask takes to build."""
    query, key, value = tensors((1, 16, 65536, 64), torch.bfloat16, "cuda")
    mask: Mask = Causal() & Window(512)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    attend(query.detach(), key.detach(), value.detach(), mask=mask)
    grown = torch.cuda.max_memory_allocated() - before
    for direction, wrap in (("forward", forward), ("forward+backward", training)):
        timed = take_turns(
            {
                "regard": wrap(partial(attend, query, key, value, mask=mask)),
                "cudnn, causal flag": wrap(partial(_direct, query, key, value, SDPBackend.CUDNN_ATTENTION)),
            },
            rounds=11,
            warm_up=5,
            inner=5,
        )
        kernel = which_kernel(query, key, value, mask=mask).name
        for row in compared(f"causal window 512, 65536 tokens, 16 heads of 64, bfloat16, {direction}", timed, kernel):
            yield row | ({"extra_bytes_of_first_call": grown} if row["contestant"] == "regard" else {})


def tensors(shape: tuple[int, int, int, int], dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Random queries, keys and values that want gradients."""
    generator = torch.Generator(device).manual_seed(0)
    query, key, value = (
        torch.randn(shape, dtype=dtype, device=device, generator=generator).requires_grad_() for _ in range(3)
    )
    return query, key, value


def training(work: Callable[[], Tensor]) -> Work:
    """Forward and backward."""

    def both() -> None:
        out = work()
        torch.autograd.backward(out, torch.ones_like(out))

    return both


def forward(work: Callable[[], Tensor]) -> Work:
    """Forward alone."""

    def one() -> None:
        with torch.no_grad():
            work()

    return one


def compared(what: str, timed: dict[str, Any], kernel: str) -> Iterator[Row]:
    """A row per contestant: its median, its rounds, and how many times regard's time it takes."""
    own = timed["regard"].median
    for name, one in timed.items():
        row = {
            "what": what,
            "contestant": name,
            "milliseconds": round(one.median, 3),
            "ratio": round(one.median / own, 3),
        }
        row |= {"kernel": kernel} if name == "regard" else {}
        yield row | {"rounds": [round(each, 3) for each in one.rounds]}


def _direct(query: Tensor, key: Tensor, value: Tensor, backend: SDPBackend) -> Tensor:
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)
