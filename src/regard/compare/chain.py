"""Operations that must wait for each other: the longest chain in the graph that autograd records of a forward pass."""

import copy

import torch

from regard.compare.probe import probe
from regard.models.network import Network


def longest_chain(result: torch.Tensor) -> int:
    """How many recorded operations stand one behind the other between a result and what it was computed from.

    Leaves, which only collect gradients, are no operations.
    """
    depth: dict[object, int] = {}
    stack = [result.grad_fn]
    while stack:
        node = stack[-1]
        if node is None or node in depth:
            stack.pop()
            continue
        before = [one for one, _ in node.next_functions if one is not None]
        waiting = [one for one in before if one not in depth]
        if waiting:
            stack += waiting
        else:
            own = 0 if hasattr(node, "variable") else 1
            depth[node] = own + max((depth[one] for one in before), default=0)
            stack.pop()
    return depth.get(result.grad_fn, 0)


def sequential_operations(module: Network, length: int) -> int:
    """The longest chain of a forward pass over a source and a target of so many tokens.

    It is counted on the CPU in float64: oneDNN's and cuDNN's recurrent layers are one operation in the graph whatever
    they read, and neither computes in it.
    """
    plain = copy.deepcopy(module).cpu().double().train()
    return longest_chain(plain(probe(module.config.vocabulary, rows=1, length=length)))
