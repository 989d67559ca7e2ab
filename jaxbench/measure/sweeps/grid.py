"""A grid of experiments: flags with alternatives, every combination of which is a cell.

Alternatives are separated by '|', which no flag's value contains: commas and equals signs are
taken by meshes, axis orders and delays. `--devices='2|4' --mesh='pipeline=1|pipeline=2'` makes
four cells.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jaxbench.errors import InputError
from jaxbench.experiment import Experiment
from jaxbench.experiment_rules import OPTION_STRATEGIES

SEPARATOR = "|"
MOST_CELLS = 10_000


def experiment_key(experiment: Mapping[str, Any]) -> str:
    """Return what identifies an experiment, given as `Experiment.to_dict` or a record has it.

    16 hexadecimal digits of the SHA-256 of its JSON: the same on every machine and in every
    process, other for any other setting.
    """
    text = json.dumps(experiment, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Cell:
    """One experiment of a grid; `flags` are its flags as given, `label` those that vary."""

    label: str
    flags: Mapping[str, str]
    experiment: Experiment
    key: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", experiment_key(self.experiment.to_dict()))

    @property
    def words(self) -> list[str]:
        """The flags of a `jaxbench run` that makes this experiment."""
        return [f"--{name}={text}" for name, text in sorted(self.flags.items())]


def alternatives(name: str, text: str) -> list[str]:
    """Return the alternatives of a flag's value. Raises InputError if one of them is empty."""
    parts = [part.strip() for part in text.split(SEPARATOR)]
    if len(parts) > 1 and not all(parts):
        raise InputError(f"--{name} is '{text}', in which an alternative is empty")
    return parts


def combinations(
    layers: Sequence[Mapping[str, str]],
) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield (label, layers) for each combination of the alternatives of all flags in the layers.

    A flag counts in the last layer that has it only. Raises InputError for empty alternatives
    and for too many combinations.
    """
    owner = {name: index for index, layer in enumerate(layers) for name in layer}
    choices: dict[str, list[str]] = {}
    faults: list[str] = []
    for name, index in owner.items():
        try:
            choices[name] = alternatives(name, layers[index][name])
        except InputError as error:
            faults += error.faults
    count = math.prod(map(len, choices.values()))
    if count > MOST_CELLS:
        faults.append(f"the grid has {count:,} cells; at most {MOST_CELLS:,} are taken")
    if faults:
        raise InputError(faults)
    varied = [name for name, texts in choices.items() if len(texts) > 1]
    for chosen in itertools.product(*choices.values()):
        values = dict(zip(choices, chosen, strict=True))
        for name in varied:  # where it changes nothing it would only repeat a cell
            if values.get("strategy") not in OPTION_STRATEGIES.get(name, (values.get("strategy"),)):
                del values[name]
        split: list[dict[str, str]] = [{} for _ in layers]
        for name, text in values.items():
            split[owner[name]][name] = text
        yield " ".join(f"{name}={values[name]}" for name in varied if name in values), split


def distinct(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells without those that are the same experiment as an earlier one."""
    first: dict[str, Cell] = {}
    for cell in cells:
        first.setdefault(cell.key, cell)
    return list(first.values())


def grid_faults(wrong: Sequence[tuple[str, Sequence[str]]], total: int) -> list[str]:
    """Return each fault once, of cells (label, faults), with the cells that it concerns."""
    cells: dict[str, list[str]] = {}
    for label, faults in wrong:
        for fault in faults:
            cells.setdefault(fault, []).append(label)
    texts = []
    for fault, labels in cells.items():
        if len(labels) == total or not any(labels):
            texts.append(fault)
        elif len(labels) == 1:
            texts.append(f"cell {labels[0]}: {fault}")
        else:
            texts.append(f"{fault} (in {len(labels)} of {total} cells, first {labels[0]})")
    return texts
