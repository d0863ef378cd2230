"""The Huffman tree of a vocabulary (Huffman 1952), for hierarchical softmax: frequent words have short ways.

Of equal counts the node that was made first goes first, words in their order before inner nodes; so one list of counts
has one tree. Word2vec's, whose ties fall otherwise, has the same total length.
"""

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int8, Int32, Int64


class Paths(NamedTuple):
    """From the root to each word in turn: the inner nodes passed, and the turn taken at each (1 or 0)."""

    starts: Int64[np.ndarray, "ends"]
    """Where each word's way begins; one more for the end of the last."""
    nodes: Int32[np.ndarray, "steps"]
    turns: Int8[np.ndarray, "steps"]


def huffman_paths(counts: Sequence[int]) -> Paths:
    """The ways to words of these counts; inner nodes are numbered from 0, the root being the last."""
    words = len(counts)
    above, turn = np.zeros(2 * words - 1, dtype=np.int64), np.zeros(2 * words - 1, dtype=np.int8)
    heap = [(int(count), row) for row, count in enumerate(counts)]
    heapq.heapify(heap)
    for node in range(words, 2 * words - 1):
        (few, left), (more, right) = heapq.heappop(heap), heapq.heappop(heap)
        above[[left, right]], turn[right] = node, 1
        heapq.heappush(heap, (few + more, node))
    starts, nodes, turns = [0], [], []
    for word in range(words):
        way, node = [], word
        while node != 2 * words - 2:
            way.append((int(above[node]) - words, int(turn[node])))
            node = int(above[node])
        nodes += [inner for inner, _ in reversed(way)]
        turns += [taken for _, taken in reversed(way)]
        starts.append(len(nodes))
    return Paths(np.array(starts, dtype=np.int64), np.array(nodes, dtype=np.int32), np.array(turns, dtype=np.int8))
