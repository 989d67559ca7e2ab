"""Process 0's word, bit for bit; and never a word with oneself where JAX has others."""

from __future__ import annotations

import json

import jax
import pytest

from jaxbench.errors import RunError
from jaxbench.measure import processes
from jaxbench.measure.agree import agree, digest, everywhere, odd_processes
from jaxbench.measure.gather import gather, total
from jaxbench.measure.processes import Alone

VALUES = [0, 7, -3, 2**40 + 1, 0.1, -2.5e-9, 1e300]


class OfThree(Alone):
    """Process 1 of three, whose values come over a wire; process 0 has `first`."""

    index = 1
    count = 3

    def __init__(self, first):
        super().__init__()
        self.first = first

    def from_first(self, value):
        return json.loads(json.dumps(self.first))

    def to_first(self, value):
        return [value]


@pytest.fixture
def three(monkeypatch):
    """Make this process one of three, as JAX and jaxbench see it."""

    def make(first=None):
        monkeypatch.setattr(jax, "process_count", lambda: 3)
        monkeypatch.setattr(processes, "_here", [OfThree(first)])

    return make


@pytest.mark.parametrize("value", VALUES)
def test_one_process_agrees_with_itself(value):
    assert agree(value) == value
    assert type(agree(value)) is type(value)


@pytest.mark.parametrize("value", VALUES)
def test_the_value_of_process_0_arrives_exactly(three, value):
    three(value)
    assert agree(-1) == value
    assert type(agree(type(value)(-1))) is type(value)


def test_processes_that_were_not_joined_are_no_run_of_one(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    for ask in (lambda: agree(1), lambda: everywhere(True), lambda: gather([1.0])):
        with pytest.raises(RunError, match="JAX has 2 processes and jaxbench knows of 1"):
            ask()


def test_one_process_alone():
    assert everywhere(True) and not everywhere(False)
    assert gather([1.0, 2.0]) == [[1.0, 2.0]]
    assert total(3) == 3
    assert odd_processes("x") == []


def test_the_odd_ones_are_those_that_process_0_found(three):
    three([2])
    assert odd_processes("x") == [2]


def test_a_digest_is_of_the_text_without_addresses():
    assert digest("f at 0x7f1a") == digest("f at 0x99") != digest("g at 0x99")
