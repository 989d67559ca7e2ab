"""The table of the paper's placement classes."""

from __future__ import annotations

import pytest

from jaxbench.topology.placement_classes import ALLOWED_PLACEMENTS, PLACEMENTS, SCORE_BOUNDS

SCORES = {
    "intra-l1": 1.0,
    "intra-group-same-l1-4": 1.2,
    "intra-group-same-l1-2": 1.5,
    "intra-group": 2.0,
    "inter-group-same-l1-4": 2.25,
    "inter-group-same-l1-2": 2.5,
    "inter-group": 3.0,
}


def test_scores() -> None:
    assert {name: row.score for name, row in PLACEMENTS.items()} == SCORES
    assert list(SCORES.values()) == sorted(SCORES.values())
    assert min(SCORES.values()) < SCORE_BOUNDS[0] < SCORE_BOUNDS[1] < max(SCORES.values())


@pytest.mark.parametrize("name", PLACEMENTS)
def test_a_name_says_what_the_class_is(name: str) -> None:
    scope, block, _ = PLACEMENTS[name]
    assert block == (int(name[-1]) if "same-l1" in name else 1)
    start = {"leaf": "intra-l1", "group": "intra-group", "system": "inter-group"}[scope]
    assert name.startswith(start)


# REFERENCE D, with what is in parentheses there after the bar
TEXT = {
    "dp": "intra-l1 intra-group inter-group |",
    "fsdp": "intra-l1 intra-group-same-l1-2 inter-group-same-l1-2 | intra-group inter-group",
    "dp_pp": "intra-l1 intra-group-same-l1-2 inter-group-same-l1-2 inter-group | intra-group",
    "dp_pp_tp": "intra-group-same-l1-4 inter-group-same-l1-4 inter-group | intra-group",
    "dp_pp_ep": "intra-group inter-group |",
}


def test_what_strategies_may_have() -> None:
    told = {
        name: " ".join([*row.baseline, "|", *row.extension])
        for name, row in ALLOWED_PLACEMENTS.items()
    }
    assert told == TEXT
    assert {name for row in ALLOWED_PLACEMENTS.values() for part in row for name in part} == set(
        PLACEMENTS
    )
