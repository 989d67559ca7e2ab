"""When an iteration is a steady shift."""

from __future__ import annotations

import numpy as np

from jaxbench.readings.simulate.fold import steady_shift


def times(*rows: tuple[float, ...]) -> np.ndarray:
    """Return times of a 2 x 3 mesh, for one cost model."""
    return np.array(rows)[None]


BEFORE = times((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))
ALIKE = times((7.0, 7.0, 7.0), (7.0, 7.0, 7.0))
BY_ROW = times((7.0, 7.0, 7.0), (8.0, 8.0, 8.0))


def test_everything_must_move_alike_where_ranks_communicate() -> None:
    for dims in ((), (1,), (2,), (1, 2)):
        shift = steady_shift([(BEFORE, BEFORE + ALIKE)], dims, None)
        assert shift is not None
        assert np.array_equal(np.broadcast_to(shift, ALIKE.shape), ALIKE)
    shift = steady_shift([(BEFORE, BEFORE + BY_ROW)], (2,), None)
    assert shift is not None
    assert np.array_equal(np.broadcast_to(shift, BY_ROW.shape), BY_ROW)
    assert steady_shift([(BEFORE, BEFORE + BY_ROW)], (1,), None) is None


def test_everything_must_move_by_the_same() -> None:
    moves = [(BEFORE, BEFORE + ALIKE), (BEFORE * 2, BEFORE * 2 + ALIKE)]
    assert steady_shift(moves, (1, 2), None) is not None
    assert steady_shift([*moves, (BEFORE, BEFORE)], (1, 2), None) is None
    assert steady_shift([*moves, (BEFORE, BEFORE + 7.001)], (1, 2), None) is None


def test_nothing_goes_back_in_time() -> None:
    assert steady_shift([(BEFORE + ALIKE, BEFORE)], (1, 2), None) is None
    still = steady_shift([(BEFORE, BEFORE)], (1, 2), None)
    assert still is not None
    assert not still.any()


def test_what_others_do_does_not_matter() -> None:
    second = np.array([[False] * 3, [True] * 3])[None]
    shift = steady_shift([(BEFORE, BEFORE + BY_ROW)], (1, 2), second)
    assert shift is not None
    assert np.array_equal(shift, [[[8.0]]])
    odd = BY_ROW.copy()
    odd[0, 1, 2] = 9.0
    assert steady_shift([(BEFORE, BEFORE + odd)], (2,), second) is None


def test_nothing_to_compare_is_no_shift() -> None:
    assert steady_shift([], (1,), None) is None
