"""When a job is ended, and what is said then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxbench.launch.watch import (
    BAD_INPUT,
    FAILED,
    GRACE_S,
    INPUT_GRACE_S,
    SETTLE_S,
    Failure,
    Limits,
    State,
    Verdict,
    failed,
    judge,
    missing,
    named,
    placed,
)

NOW = 100.0
LIMITS = Limits(10.0, {"step": 5.0, "compile": 50.0})


def states(count: int = 4, **more: object) -> dict[int, State]:
    """Return processes that are all well, in step 7, two on each host."""
    well = State("", 0, heard=NOW, stage="step", number=7, place=9, since=NOW)
    return {
        k: replace(well, host=f"n{k // 2 + 1}", pid=500 + k, **more)  # type: ignore[arg-type]
        for k in range(count)
    }


def verdict(changed: Mapping[int, Mapping[str, object]], after_s: float = 0.0) -> Verdict | None:
    """Return what is judged of processes that are well but for these changes."""
    now = NOW + after_s
    found = {k: replace(s, heard=now) for k, s in states().items()}
    for number, change in changed.items():
        found[number] = replace(found[number], **change)  # type: ignore[arg-type]
    return judge(found, now, LIMITS)


def test_nothing_is_wrong_with_those_who_are_well() -> None:
    assert verdict({}) is None
    assert verdict({}, 4.9) is None


def test_a_death_is_told_once_others_could_have_died_too() -> None:
    dead = {"ended": NOW, "number": 6, "place": 8}
    assert verdict({3: dead}, SETTLE_S / 2) is None
    told = verdict({3: dead}, SETTLE_S + 0.01)
    assert told == Verdict(
        FAILED, "stage step 7: process 3 (n2), pid 503 ended without a word, last in step 6"
    )
    told = verdict({2: dead, 3: dead, 1: {**dead, "ended": NOW + 0.2}}, SETTLE_S + 0.01)
    assert told and "process 1 (n1) and processes 2, 3 (n2) ended without a word" in told.text


def test_who_has_left_may_go() -> None:
    assert verdict({3: {"ended": NOW, "left": True}}, 60) is not None  # the others stay too long
    gone = {k: {"ended": NOW, "left": True} for k in range(4)}
    assert verdict(gone, 60) is None


def test_silence() -> None:
    assert verdict({2: {"heard": NOW - 9.9}}) is None
    told = verdict({2: {"heard": NOW - 10.1, "stage": "compile", "number": None}})
    assert told and told.stuck == (2,)
    assert "stage step 7: nothing heard from process 2 (n2) for 10 s, last in compile" in told.text


def test_one_failure_is_the_job_s_after_a_while() -> None:
    raised = {"failure": Failure(FAILED, "ValueError: no", NOW)}
    assert verdict({1: raised}, GRACE_S * 0.9) is None
    told = verdict({1: raised}, GRACE_S)
    assert told == Verdict(FAILED, "stage step 7: process 1 (n1): ValueError: no")


def test_a_failure_of_all_is_told_at_once_and_as_it_is() -> None:
    same = {k: {"failure": Failure(BAD_INPUT, "2 faults:\n  a\n  b", NOW)} for k in range(4)}
    assert verdict(same) == Verdict(BAD_INPUT, "2 faults:\n  a\n  b")
    assert verdict({k: same[k] for k in range(3)}, GRACE_S) is None  # input is given more time
    told = verdict({k: same[k] for k in range(3)}, INPUT_GRACE_S)
    assert told and told.code == BAD_INPUT and "processes 0, 1 (n1) and process 2 (n2)" in told.text


def test_failures_of_several_kinds() -> None:
    found = states()
    for k, text in enumerate(["a", "b", "a", "a"]):
        found[k].failure = Failure(BAD_INPUT if text == "a" else FAILED, text, NOW)
    told = failed(found)
    assert told.code == FAILED
    assert told.text.splitlines() == [
        "stage step 7: process 0 (n1) and processes 2, 3 (n2): a",
        "stage step 7: process 1 (n1): b",
    ]


def test_a_death_explains_the_failures_of_the_others() -> None:
    """When a rank dies, gloo raises in its neighbours at once."""
    raised = {"failure": Failure(FAILED, "Gloo: connection closed by peer", NOW)}
    told = verdict({0: raised, 1: raised, 2: raised, 3: {"ended": NOW}}, GRACE_S)
    assert told and "process 3 (n2), pid 503 ended without a word" in told.text
    assert "Gloo" not in told.text


def test_a_stage_has_a_limit() -> None:
    told = verdict({}, 5.1)
    assert told and "stage step 7: over its limit of 5 s; all processes are in it" in told.text
    behind = {1: {"stage": "compile", "number": None, "place": 3, "since": NOW - 47}}
    assert verdict(behind) is None
    told = verdict(behind, 3.5)
    assert told and "stage step 7: over its limit of 50 s; process 1 (n1) did not get" in told.text
    assert told.text.endswith("last in compile (--stage_limits=compile=SECONDS allows more)")


def test_those_who_wait_are_not_late() -> None:
    waiting = {k: {"waiting": True} for k in range(3)}
    told = verdict(waiting, 5.1)
    assert told and "process 3 (n2) did not get further, last in step 7" in told.text
    assert verdict({**waiting, 3: {"waiting": True}}, 500) is None


def test_who_is_late_and_quiet_is_stuck() -> None:
    told = verdict({3: {"heard": NOW + 1}}, 5.1)
    assert told and told.stuck == (3,)


def test_those_who_did_not_come() -> None:
    told = missing(states(2), 6, 60)
    assert told.code == FAILED
    assert "stage start: processes 2-5 of 6 did not arrive within 60 s; " in told.text
    assert "processes 0, 1 (n1) did" in told.text
    assert "nobody did" in missing({}, 6, 60).text


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([3], "process 3"),
        ([1, 2], "processes 1, 2"),
        ([5, 3, 4], "processes 3-5"),
        ([0, 1, 2, 4, 6, 7], "processes 0-2, 4, 6, 7"),
    ],
)
def test_numbers_in_words(numbers: list[int], text: str) -> None:
    assert named(numbers) == text


def test_many_hosts_are_cut() -> None:
    text = placed(states(60), list(range(60)))
    assert text.startswith("processes 0, 1 (n1) and ") and text.endswith(" and 22 more hosts")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["well", "ended", "silent", "failed", "left", "waiting"]),
            st.floats(0, 200),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_every_verdict_has_words_and_a_code_that_is_not_0(what: list[tuple[str, float]]) -> None:
    found = states(len(what))
    for number, (state, seconds) in enumerate(what):
        at = NOW - seconds
        one = found[number]
        one.ended = at if state == "ended" else None
        one.heard = at if state == "silent" else NOW
        one.failure = Failure(FAILED, "x", at) if state == "failed" else None
        one.left, one.waiting = state == "left", state == "waiting"
    told = judge(found, NOW, LIMITS)
    well = all(state in ("well", "left", "waiting") for state, _ in what)
    assert not (well and told)
    assert told is None or (
        told.code != 0 and told.text and "process" in told.text or "x" in told.text
    )
