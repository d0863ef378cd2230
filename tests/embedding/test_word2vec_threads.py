"""Threads that wait for each other: nobody goes on early, and nobody waits for one who will not come."""

import numpy as np
import pytest

pytest.importorskip("numba")

from regard.embedding.word2vec.threads import meet, new_meeting, share_out


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_nobody_leaves_a_meeting_before_all_have_come(parts):
    meeting, rounds = new_meeting(), 97
    come, missed = np.zeros(parts, np.int64), []

    def work(part: int) -> None:
        for turn in range(1, rounds + 1):
            come[part] = turn
            assert meet(meeting, (2 * turn - 1) * parts)
            if (come != turn).any():
                missed.append((part, turn))
            assert meet(meeting, 2 * turn * parts)

    share_out(work, parts, meeting)
    assert missed == []
    assert come.tolist() == [rounds] * parts


@pytest.mark.parametrize("parts", [2, 3])
def test_a_part_that_fails_keeps_nobody_waiting_and_is_heard_of(parts):
    meeting, told = new_meeting(), []

    def work(part: int) -> None:
        if part == 1:
            raise ZeroDivisionError("a part that fails")
        told.append(meet(meeting, parts))

    with pytest.raises(ZeroDivisionError, match="a part that fails"):
        share_out(work, parts, meeting)
    assert told == [False] * (parts - 1)
