"""Which strategy and mesh shape trains a model fastest on a system: all are simulated and ranked.

advice = advise(base, given, predictor=predictor_on("alps", base))   # no devices
print(advice.winner, advice.reason)

Memory (`training_memory`) says what fits; what does is simulated in the order of the throughput
that it could have with free communication. Of every shape the most promising options are, then
more as long as they could change who is first or second.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from jaxbench.axes import STRATEGY_AXES
from jaxbench.errors import InputError
from jaxbench.experiment import Experiment
from jaxbench.readings.advise_candidates import Candidate, Shape, find_candidates
from jaxbench.readings.predict import Prediction, predict
from jaxbench.readings.simulate.system import Fits, price
from jaxbench.units import format_bytes, format_seconds, format_share

# The parts that add up to a step, as fields of a prediction, in words.
PARTS = {
    "compute_s": "compute",
    "bubble_s": "bubble",
    "skew_s": "skew of compute between ranks",
    "transfer_exposed_s": "exposed transfer",
    "latency_s": "latency",
}


EQUAL = 0.0005  # relative difference in throughput that is none


class Predictor(Protocol):
    """Predicts a step of an experiment, keeping the operations of the ranks in `record`."""

    def __call__(self, experiment: Experiment, record: Sequence[int] = ()) -> Prediction: ...


@dataclass(frozen=True)
class Choice:
    """A simulated candidate; `parts_s` are the seconds of a step by PARTS."""

    candidate: Candidate
    step_s: float
    throughput: float
    communication_share: float
    parts_s: dict[str, float]

    @property
    def device_s(self) -> dict[str, float]:
        """Device-seconds a sample by PARTS, in which steps of different batches compare."""
        scale = self.candidate.experiment.devices / self.candidate.global_batch
        return {name: seconds * scale for name, seconds in self.parts_s.items()}

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            **_plain(self.candidate),
            "step_s": self.step_s,
            "throughput": self.throughput,
            "communication_share": self.communication_share,
            "parts_s": self.parts_s,
        }


@dataclass(frozen=True)
class Advice:
    """The best choice of every shape that fits, fastest first, and what doesn't fit.

    `winner` is the fastest whose global batch isn't beyond the critical one, or just the fastest
    if there is none; None if nothing fits. `considered` counts combinations, `refused` those that
    make no sense by why, `feasible` and `fitting` what is left of them (one batch each),
    `simulated` what was simulated.
    """

    ranking: tuple[Choice, ...]
    unfit: tuple[Candidate, ...]
    considered: int
    refused: Counter[str]
    feasible: int
    fitting: int
    simulated: int
    took_s: float

    @property
    def winner(self) -> Choice | None:
        """What to use."""
        return next(iter(self._preferred), None)

    @property
    def runner_up(self) -> Choice | None:
        """The best of the other shapes."""
        return next(iter(self._preferred[1:]), None)

    @property
    def _preferred(self) -> list[Choice]:
        return sorted(self.ranking, key=lambda choice: choice.candidate.warning is not None)

    @property
    def other_strategy(self) -> Choice | None:
        """The best of the other strategies."""
        winner = self.winner
        if winner is None:
            return None
        strategy = winner.candidate.experiment.strategy
        return next(
            (c for c in self._preferred if c.candidate.experiment.strategy != strategy), None
        )

    @property
    def reason(self) -> str:
        """Why it wins: what it has less of than the runner-up, and than other strategies."""
        if self.winner is None:
            return "nothing fits"
        rivals = [rival for rival in (self.runner_up, self.other_strategy) if rival]
        reasons = [_reason(self.winner, rival) for rival in rivals]
        return "; ".join(dict.fromkeys(reasons)) or "nothing else fits"

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        winner = self.winner
        return {
            "winner": winner and winner.to_json(),
            "reason": self.reason,
            "ranking": [choice.to_json() for choice in self.ranking],
            "unfit": [{**_plain(c), "why": why_unfit(c)} for c in self.unfit],
            "considered": self.considered,
            "refused": sum(self.refused.values()),
            "feasible": self.feasible,
            "fitting": self.fitting,
            "simulated": self.simulated,
            "took_s": self.took_s,
        }


def predictor_on(
    system: str, base: Experiment, fits: Fits | None = None, **where: str
) -> Predictor:
    """Return what predicts experiments with the devices of `base` on a system.

    `where` and `fits` are as `price` takes them. The costs of a group are kept from one experiment
    to the next. Errors: InputError.
    """
    priced = price(base, system, fits=fits, **where)

    def predict_there(experiment: Experiment, record: Sequence[int] = ()) -> Prediction:
        # Fits are bound to the axes that they were measured over.
        used = price(experiment, system, fits=fits, **where) if fits else priced
        return predict(
            experiment, used.costs, used.semantics, record=record, described=used.described
        )

    return predict_there


def advise(
    base: Experiment,
    given: Collection[str],
    predictor: Predictor,
    *,
    scale_up: int,
    strategies: Collection[str] = tuple(STRATEGY_AXES),
    progress: Callable[[int], None] = lambda simulated: None,
) -> Advice:
    """Rank what the devices of `base` can be used for to train its model.

    `given` names the fields of `base` that stay as they are, `scale_up` how many devices a tensor
    group can be on. InputError if no combination makes sense.
    """
    start = time.perf_counter()
    found = find_candidates(base, given, strategies, scale_up)
    if not found.candidates:
        raise InputError([fault for fault, _ in found.refused.most_common(3)] or _none(base))
    fitting = sorted(
        (c for c in found.candidates if c.memory.fits), key=lambda c: -c.most_throughput
    )
    race = _Race(predictor, progress)
    later = []
    for candidate in fitting:
        if candidate.shape in race.best:
            later.append(candidate)
        else:
            race.run(candidate)
    for candidate in later:
        if race.could_matter(candidate):
            race.run(candidate)
    unfit: dict[Shape, Candidate] = {}
    for candidate in found.candidates:
        least = unfit.get(candidate.shape)
        if candidate.shape not in race.best and (
            least is None or candidate.memory.total_bytes < least.memory.total_bytes
        ):
            unfit[candidate.shape] = candidate
    return Advice(
        ranking=tuple(sorted(race.best.values(), key=lambda choice: -choice.throughput)),
        unfit=tuple(sorted(unfit.values(), key=lambda c: c.memory.total_bytes)),
        considered=found.considered,
        refused=found.refused,
        feasible=len(found.candidates),
        fitting=len(fitting),
        simulated=race.simulated,
        took_s=time.perf_counter() - start,
    )


class _Race:
    """The best simulated choice of every shape."""

    def __init__(self, predictor: Predictor, progress: Callable[[int], None]):
        self.best: dict[Shape, Choice] = {}
        self.simulated = 0
        self._predictor = predictor
        self._progress = progress

    def run(self, candidate: Candidate) -> None:
        """Simulate a candidate; keep it if it is the best of its shape."""
        prediction = self._predictor(candidate.experiment)
        choice = Choice(
            candidate=candidate,
            step_s=prediction.step_s,
            throughput=prediction.throughput,
            communication_share=prediction.communication_share,
            parts_s={name: getattr(prediction, name) for name in PARTS},
        )
        best = self.best.get(candidate.shape)
        if best is None or _key(choice) > _key(best):
            self.best[candidate.shape] = choice
        self.simulated += 1
        self._progress(self.simulated)

    def could_matter(self, candidate: Candidate) -> bool:
        """Whether the candidate could become first or second, or better of its shape there."""
        bound = (candidate.warning is None, candidate.most_throughput)
        others = sorted(
            (_key(choice) for shape, choice in self.best.items() if shape != candidate.shape),
            reverse=True,
        )
        second = others[1] if len(others) > 1 else (False, 0.0)
        return bound > _key(self.best[candidate.shape]) and bound > second


def why_unfit(candidate: Candidate) -> str:
    """Say what a candidate needs and what there is."""
    memory = candidate.memory
    largest = sorted(memory.parts.items(), key=lambda item: -item[1])[:2]
    parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in largest)
    return (
        f"needs {format_bytes(memory.total_bytes)} a device ({parts}), of "
        f"{format_bytes(memory.usable_bytes)} that are usable"
    )


def _key(choice: Choice) -> tuple[bool, float]:
    return choice.candidate.warning is None, choice.throughput


def _plain(candidate: Candidate) -> dict[str, Any]:
    e, memory = candidate.experiment, candidate.memory
    return {
        "strategy": e.strategy,
        "mesh": dict(e.mesh),
        "options": candidate.options,
        "flags": candidate.flags,
        "batch": e.batch,
        "global_batch": candidate.global_batch,
        "global_batch_tokens": candidate.global_batch * candidate.workload.sequence,
        "warning": candidate.warning,
        "memory_bytes": {**memory.parts, "total": memory.total_bytes},
        "usable_bytes": memory.usable_bytes,
        "fits": memory.fits,
    }


def _reason(winner: Choice, other: Choice) -> str:
    """Compare two choices: how much faster, and by which parts of a step."""
    ratio = winner.throughput / other.throughput - 1
    text = f"{format_share(abs(ratio))} {'faster' if ratio > 0 else 'slower'} than "
    if abs(ratio) < EQUAL:
        text = "as fast as "
    text += other.candidate.describe()
    if other.candidate.warning and not winner.candidate.warning:
        text += ", whose global batch is beyond the critical one"
    saved = {
        PARTS[name]: other.device_s[name] - seconds for name, seconds in winner.device_s.items()
    }
    less = [f"{format_seconds(s)} less {part}" for part, s in _largest(saved)]
    spent = {part: -seconds for part, seconds in saved.items()}
    more = [f"{format_seconds(s)} more {part}" for part, s in _largest(spent)]
    if less or more:
        text += ": a sample takes " + ", ".join(less or ["nothing less"])
        text += f" (and {', '.join(more)})" if more else ""
        text += " in device-seconds"
    return text


def _largest(parts: dict[str, float]) -> list[tuple[str, float]]:
    """Return the parts above a tenth of the largest one, largest first, two at most."""
    top = max(parts.values(), default=0.0)
    shown = [(part, s) for part, s in parts.items() if s > max(top / 10, 0)]
    return sorted(shown, key=lambda item: -item[1])[:2]


def _none(base: Experiment) -> str:
    return f"none of the strategies can use {base.devices} devices for {base.model}"
