"""Two sets of records, compared configuration by configuration: is one slower, and how surely?

A configuration is an experiment apart from what only says how it was measured (seed, steps, ...).
What can't be compared is told, never left out silently: configurations of one side only, partial
records, other machines and versions.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from jaxbench.errors import InputError
from jaxbench.experiment import Experiment
from jaxbench.measure.collectives.manner import Manner
from jaxbench.measure.ratio import Ratio, ratio_of_medians
from jaxbench.measure.record import FILE_NAME, read_records
from jaxbench.measure.statistics import CONFIDENCE, max_over_ranks, median

VARIANT = "full"  # of a record's samples: the whole program

# Fields of an experiment that say how it is measured, not what.
HOW_MEASURED = (
    *("seed", "steps", "warmup", "out", "expect_devices", "decompose", "profile"),
    *("min_seconds", "until_ci", "max_steps", "max_seconds", "asked_bytes"),
)
# Of these, what may change the times by itself.
TOLD = ("decompose",)

# How a configuration is named: a run's, then those of a collective by itself.
TITLE = ("strategy", "model", "kind", "bytes", "axis")

# What is told of `environment` where the two sides differ; versions and variables are too.
PLACE = ("platform", "device_kind", "processes", "host", "system", "cpu", "cores", "git_revision")

TOO_FEW = "too few steps to tell"
NO_DIFFERENCE = "no difference shown"
UNKNOWN_VARIANCE = "run-to-run variance unknown"


@dataclass(frozen=True)
class Side:
    """The records of one file: those to compare, and why the others are not."""

    name: str
    records: list[Mapping[str, Any]]
    partial: int = 0
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Compared:
    """One configuration on both sides; `ratio` is b over a, so above 1 b is slower.

    `levels` are the two sides' seconds: geometric mean over runs of a run's median step.
    `differences` between their environments are sentences.
    """

    configuration: str
    experiment: Mapping[str, Any]
    levels: tuple[float, float]
    ratio: Ratio
    differences: list[str]

    @property
    def runs(self) -> tuple[int, int]:
        """How many runs a and b have."""
        of_b, of_a = self.ratio.runs or (0, 0)
        return of_a, of_b

    @property
    def steps(self) -> tuple[int, int]:
        """How many steps the runs of a and of b have together."""
        of_b, of_a = self.ratio.n
        return of_a, of_b

    @property
    def variance_known(self) -> bool:
        """Whether both sides have several runs, so that the interval holds for other runs too."""
        return min(self.runs) > 1

    @property
    def verdict(self) -> str:
        """What the interval says, in words."""
        ratio = self.ratio
        if ratio.differs is None or ratio.value is None:
            said = TOO_FEW
        elif not ratio.differs:
            said = NO_DIFFERENCE
        else:
            way = "longer" if ratio.value > 1 else "less time"
            said = f"b takes {100 * abs(ratio.value - 1):.3g} % {way}"
        return said if self.variance_known else f"{said}; {UNKNOWN_VARIANCE}"

    def to_json(self) -> dict[str, Any]:
        """Return the row as plain values; unknown ones are None."""
        return {
            "configuration": self.configuration,
            "experiment": dict(self.experiment),
            "runs": list(self.runs),
            "steps": list(self.steps),
            "median_s": list(self.levels),
            "ratio": self.ratio.value,
            "ci_low": self.ratio.ci_low,
            "ci_high": self.ratio.ci_high,
            "confidence": CONFIDENCE,
            "differs": self.ratio.differs,
            "run_variance_known": self.variance_known,
            "verdict": self.verdict,
            "differences": self.differences,
        }


@dataclass(frozen=True)
class Comparison:
    """All configurations of both sides, and those of one side only, as {name: runs}."""

    a: Side
    b: Side
    rows: list[Compared]
    only_a: dict[str, int]
    only_b: dict[str, int]
    warnings: list[str]

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as plain values."""
        return {
            "a": self.a.name,
            "b": self.b.name,
            "rows": [row.to_json() for row in self.rows],
            "only_a": self.only_a,
            "only_b": self.only_b,
            "partial": {"a": self.a.partial, "b": self.b.partial},
            "warnings": self.warnings,
        }


def read_side(path: str) -> Side:
    """Read the records of a results file or folder.

    Raises InputError where it can't be read or has nothing to compare.
    """
    try:
        records, warnings = read_records(path)
    except FileNotFoundError as error:
        lacks = f"has no {FILE_NAME}" if Path(path).is_dir() else "isn't there"
        raise InputError(f"can't read results '{path}': it {lacks}") from error
    except OSError as error:
        raise InputError(f"can't read results '{path}': {error.strerror}") from error
    whole, partial, seen = [], 0, set()
    for number, record in enumerate(records, start=1):
        name = str(record.get("id") or f"number {number}")
        if record.get("partial"):
            partial += 1
        elif name in seen:
            warnings.append(f"{path} has record {name} twice: counted once")
        elif not isinstance(record.get("experiment"), Mapping) or not steps_of(record):
            warnings.append(f"{path} record {name} has no experiment with steps: skipped")
        else:
            whole.append(record)
        seen.add(name)
    if not whole:
        why = "partial ones only" if partial else warnings[0] if warnings else "it is empty"
        raise InputError(f"'{path}' has no records of runs to compare: {why}")
    return Side(path, whole, partial, warnings)


def steps_of(record: Mapping[str, Any]) -> list[float]:
    """Return a record's steps, slowest rank, in seconds; [] if they are none or not positive."""
    samples = record.get("samples")
    steps = samples.get(VARIANT) if isinstance(samples, Mapping) else None
    if not isinstance(steps, list) or not all(isinstance(step, list) for step in steps):
        return []
    given = [seconds for step in steps for seconds in step if seconds is not None]
    if not all(type(s) in (int, float) and 0 < s < math.inf for s in given):
        return []
    return [seconds for seconds in max_over_ranks(steps) if seconds is not None]


def compare(a: Side, b: Side) -> Comparison:
    """Compare two sides. Raises InputError if no configuration is in both."""
    groups = [_by_configuration(side.records) for side in (a, b)]
    names = _names({**groups[1], **groups[0]})
    both = [key for key in groups[0] if key in groups[1]]
    only_a, only_b = (
        {names[key]: len(found) for key, found in mine.items() if key not in other}
        for mine, other in (groups, groups[::-1])
    )
    if not both:
        raise InputError(
            f"no configuration is both in '{a.name}' and in '{b.name}': "
            f"a has {_some(only_a)}; b has {_some(only_b)}"
        )
    rows = [_compared(names[key], groups[0][key], groups[1][key]) for key in both]
    return Comparison(a, b, rows, only_a, only_b, [*a.warnings, *b.warnings, *_shared(a, b)])


def configuration(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what identifies the workload of a record, without settings at their defaults.

    Defaults are left out so that a record still compares after the experiment has got a new
    field. The payload is the one that ran, not `auto`.
    """
    known = (*fields(Experiment), *fields(Manner))
    defaults = {f.name: f.default for f in known if f.default is not MISSING}
    experiment = dict(record["experiment"])
    if "payload" in experiment:
        ran = _mapping(record.get("calibration")).get("payload")
        experiment["payload"] = ran or experiment["payload"]
    plain = json.loads(json.dumps(defaults))  # tuples are lists in a record
    return {
        name: value
        for name, value in experiment.items()
        if name not in HOW_MEASURED and not (name in plain and plain[name] == value)
    }


def _by_configuration(
    records: Iterable[Mapping[str, Any]],
) -> dict[str, list[Mapping[str, Any]]]:
    """Return the records by their configuration as JSON, in the order of their first ones."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        key = json.dumps(configuration(record), sort_keys=True)
        groups.setdefault(key, []).append(record)
    return groups


def _names(groups: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, str]:
    """Return a name per configuration: what and where, and what tells it from others of these."""
    titles = {key: _title(found[0]["experiment"]) for key, found in groups.items()}
    names = {}
    for key, title in titles.items():
        alike = [json.loads(other) for other in groups if titles[other] == title]
        mine = json.loads(key)
        experiment = groups[key][0]["experiment"]
        parts = [title]
        for name in dict.fromkeys(name for known in alike for name in known):
            if len({json.dumps(known.get(name)) for known in alike}) > 1:
                value = mine.get(name, experiment.get(name))
                text = f"{value:g}" if isinstance(value, float) else str(value)
                parts.append(f"{name}={text}")
        names[key] = " ".join(parts)
    return names


def _title(experiment: Mapping[str, Any]) -> str:
    parts = [str(experiment[name]) for name in TITLE if experiment.get(name) is not None]
    if mesh := _mapping(experiment.get("mesh")):
        parts.append(",".join(f"{a}={size}" for a, size in mesh.items() if size != 1) or "1 device")
    return " ".join(parts) or "an experiment"


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty one: files may hold anything."""
    return value if isinstance(value, Mapping) else {}


def _compared(
    name: str, a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]
) -> Compared:
    runs = [[steps_of(record) for record in side] for side in (a, b)]
    first, second = (_level(side) for side in runs)
    return Compared(
        configuration=name,
        experiment=configuration(a[0]),
        levels=(first, second),
        ratio=ratio_of_medians(runs[1], runs[0]),
        differences=environment_differences(a, b),
    )


def _level(runs: Sequence[Sequence[float]]) -> float:
    return math.exp(math.fsum(math.log(median(run).value or 0) for run in runs) / len(runs))


def environment_differences(
    a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return a sentence for each fact about the surroundings in which the two sides differ.

    What one side doesn't know is no difference; a variable that isn't set is.
    """
    told = []
    for facts, missing in ((_facts, None), (_variables, "not set")):
        known = [[facts(record) for record in side] for side in (a, b)]
        for name in dict.fromkeys(name for side in known for one in side for name in one):
            first, second = ({one.get(name, missing) for one in side} - {None} for side in known)
            if first != second and first and second:
                texts = [", ".join(sorted(map(str, side))) for side in (first, second)]
                told.append(f"{name}: a has {texts[0]}; b has {texts[1]}")
    return told


def _facts(record: Mapping[str, Any]) -> dict[str, str]:
    """Return what surrounds a record's workload, as {name: value}, where it is known."""
    place = _mapping(record.get("environment"))
    facts = {**_mapping(place.get("versions")), **{name: place.get(name) for name in PLACE}}
    facts |= {name: record["experiment"].get(name) for name in TOLD}
    facts["payload"] = _mapping(record.get("calibration")).get("implementation")
    facts["plan"] = _plan_text(record.get("plan"))
    return {name: str(value) for name, value in facts.items() if value is not None}


def _variables(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment variables of a record that steer JAX, XLA's flags one by one."""
    variables = dict(_mapping(_mapping(record.get("environment")).get("variables")))
    flags = [flag.partition("=") for flag in str(variables.pop("XLA_FLAGS", "")).split()]
    return {**variables, **{f"XLA_FLAGS {name}": value or "set" for name, _, value in flags}}


def _plan_text(plan: Any) -> str | None:
    """Sum up the collectives of a plan; equal texts mean equal collectives."""
    if not isinstance(plan, list) or not all(isinstance(row, Mapping) for row in plan):
        return None
    names = ("kind", "axis", "group_size", "groups", "count", "elements", "dtype")
    rows = sorted(json.dumps([row.get(name) for name in names]) for row in plan)
    digest = hashlib.sha256("\n".join(rows).encode()).hexdigest()[:8]
    count = sum(n for row in plan if isinstance(n := row.get("count"), int))
    return f"{count} collectives a step ({digest})"


def _shared(a: Side, b: Side) -> list[str]:
    """Warn of records that are on both sides: a file against a copy of itself."""
    ids = [{record.get("id") for record in side.records} - {None} for side in (a, b)]
    count = len(ids[0] & ids[1])
    return [f"{count} records are the very same in a and b"] if count else []


def _some(names: Mapping[str, int], most: int = 3) -> str:
    """Return the first names, and how many more there are."""
    first = ", ".join(f"'{name}'" for name in list(names)[:most])
    return first + (f" and {len(names) - most} more" if len(names) > most else "")
