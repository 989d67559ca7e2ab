"""The verdicts on the paper's claims: they change only on purpose."""

from __future__ import annotations

import pytest

from jaxbench.cli.reproduce_paper import experiment
from jaxbench.readings.paper.campaign import CONVENTIONS, Campaign
from jaxbench.readings.paper.claims import CLAIMS, to_json
from jaxbench.readings.paper.evidence import (
    CONTRADICTED,
    OUT_OF_REACH,
    REPRODUCED,
    VERDICTS,
    WITH,
    Evidence,
    judge,
    span,
)
from jaxbench.report.paper_page import page

# By claim: the verdict under each of CONVENTIONS.
EXPECTED: dict[int, tuple[str, str]] = {
    1: (REPRODUCED, REPRODUCED),
    2: (CONTRADICTED, CONTRADICTED),
    3: (CONTRADICTED, REPRODUCED),
    4: (REPRODUCED, REPRODUCED),
    5: (REPRODUCED, REPRODUCED),
    6: (CONTRADICTED, WITH),
    7: (REPRODUCED, CONTRADICTED),
    8: (CONTRADICTED, REPRODUCED),
    9: (REPRODUCED, REPRODUCED),
    10: (CONTRADICTED, CONTRADICTED),
    11: (OUT_OF_REACH, OUT_OF_REACH),
    12: (REPRODUCED, REPRODUCED),
    13: (CONTRADICTED, CONTRADICTED),
    14: (CONTRADICTED, WITH),
    15: (OUT_OF_REACH, OUT_OF_REACH),
    16: (OUT_OF_REACH, OUT_OF_REACH),
    17: (REPRODUCED, REPRODUCED),
    18: (OUT_OF_REACH, OUT_OF_REACH),
    19: (CONTRADICTED, CONTRADICTED),
    20: (CONTRADICTED, REPRODUCED),
}
QUICK = (1, 3, 8, 11, 12, 16)  # the others take seconds to a minute each


@pytest.fixture(scope="module")
def campaigns() -> dict[str, Campaign]:
    return {convention: Campaign(experiment, convention) for convention in CONVENTIONS}


def test_every_claim_is_asked_once() -> None:
    assert [claim.number for claim in CLAIMS] == list(EXPECTED) == list(range(1, 21))


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize(
    "number",
    [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in EXPECTED],
)
@pytest.mark.xdist_group("claims")
def test_a_verdict_is_what_it_was(
    campaigns: dict[str, Campaign], number: int, convention: str
) -> None:
    found = CLAIMS[number - 1].ask(campaigns[convention])
    assert found.verdict == EXPECTED[number][CONVENTIONS.index(convention)], found.said
    assert found.said and found.values


def test_what_depends_on_an_effect_names_it() -> None:
    assert judge(True, "so", {}, effect="magic") == Evidence(REPRODUCED, "so", {})
    assert judge(False, "so", {}, effect="magic", with_effect=True).depends_on == "magic"
    assert judge(False, "so", {}).verdict == CONTRADICTED


def test_ranges_are_said_without_a_negative_zero() -> None:
    assert span([-1e-9, 0.0]) == "0.0 %" and span([0.1, -0.02]) == "-2.0-10.0 %"


def test_the_page_has_a_row_for_each_claim_and_counts_verdicts() -> None:
    answers = [(claim, Evidence(VERDICTS[claim.number % 4], "a|b", {})) for claim in CLAIMS]
    text = page({"true": to_json(answers)})
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 21 and all("a\\|b" in row for row in rows[1:])
    assert "5 reproduced, 5 reproduced only with an effect, 5 contradicted" in text
