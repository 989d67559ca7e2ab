"""The configurations of the paper's campaign, predicted on its systems; each once.

What is asked of the simulator is what the paper ran: batch 16 per replica, 50 buckets, 16 units in
shards of 8, 8 stages with 16 microbatches, tensor 4, expert 8 (two stages up to 8 GPUs).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from jaxbench.catalog.systems import find_system
from jaxbench.errors import InputError
from jaxbench.experiment import Experiment
from jaxbench.readings.predict import Prediction, predict_system

# (name of a paper's flagfile without 'paper_', flags over it) -> the experiment
Make = Callable[[str, Mapping[str, str]], Experiment]

CONVENTIONS = ("true", "dlnetbench")
LARGE = ("alps", "leonardo", "lumi_g", "jupiter")

# GPU counts of the campaign's baseline and its extension on the large systems.
COUNTS: dict[str, tuple[int, ...]] = {
    "dp_vit_h14": (8, 16, 32, 64),
    "fsdp_llama3_8b": (16, 32, 64, 128, 256),
    "fsdp_minerva_7b": (16, 32, 64, 128, 256),
    "dp_pp_llama3_8b": (16, 32, 64, 128, 256),
    "dp_pp_minerva_7b": (16, 32, 64, 128, 256),
    "dp_pp_tp_llama3_70b": (224, 256, 512, 1024),
    "dp_pp_ep_mixtral_8x7b": (512, 1024, 2048),
}
# And inside one node or rack.
SMALL_COUNTS: dict[str, tuple[int, ...]] = {
    "dp_vit_h14": (2, 4, 8),
    "fsdp_llama3_8b": (4, 8),
    "fsdp_minerva_7b": (4, 8),
    "dp_pp_llama3_8b": (4, 8),
    "dp_pp_minerva_7b": (4, 8),
}
FSDP = ("fsdp_llama3_8b", "fsdp_minerva_7b")
PIPELINES = ("dp_pp_llama3_8b", "dp_pp_minerva_7b")
HYBRIDS = (*PIPELINES, "dp_pp_tp_llama3_70b", "dp_pp_ep_mixtral_8x7b")


@dataclass
class Campaign:
    """Predictions under one timing convention, kept so that claims share them."""

    make: Make
    convention: str
    _known: dict[tuple[str, ...], Prediction] = field(default_factory=dict)

    def experiment(self, name: str, system: str, devices: int, **flags: str) -> Experiment:
        """Return a configuration on `devices` of a system, with the mesh that the paper gave it."""
        mesh = ""
        if name in FSDP:
            mesh = f"fsdp={min(8, devices)}"
        elif name in PIPELINES:
            mesh = f"pipeline={2 if devices <= 8 else 8}"
        meshed = {"mesh": mesh} if mesh else {}
        convention = {"convention": self.convention}
        given = {"system": system, "devices": str(devices), **meshed, **convention, **flags}
        return self.make(name, given)

    def predict(
        self, name: str, system: str, devices: int, placement: str = "", **flags: str
    ) -> Prediction:
        """Return the prediction of a configuration; the same one is simulated once."""
        key = (name, system, str(devices), placement, *sorted(f"{k}={v}" for k, v in flags.items()))
        if key not in self._known:
            experiment = self.experiment(name, system, devices, **flags)
            self._known[key] = predict_system(experiment, system, placement=placement)
        return self._known[key]

    def feasible(self, name: str, system: str, small: bool = False) -> list[int]:
        """Return the GPU counts of the campaign that a system has."""
        counts = (SMALL_COUNTS if small else COUNTS).get(name, ())
        return [n for n in counts if n <= find_system(system).devices]

    def relevances(
        self,
        names: tuple[str, ...],
        systems: tuple[str, ...],
        flags: Mapping[str, str] | None = None,
        *,
        small: bool = False,
    ) -> list[float]:
        """Return the communication relevance of every feasible count of these configurations."""
        return [
            self.predict(name, system, n, **(flags or {})).communication_relevance
            for name in names
            for system in systems
            for n in self.feasible(name, system, small)
        ]

    def efficiencies(
        self, names: tuple[str, ...], systems: tuple[str, ...], *, small: bool = False
    ) -> list[float]:
        """Return T(N)/T(N0) * N0/N of every count beyond the smallest one."""
        found = []
        for name in names:
            for system in systems:
                counts = self.feasible(name, system, small)
                if len(counts) < 2:
                    continue
                first = self.predict(name, system, counts[0]).throughput / counts[0]
                found += [self.predict(name, system, n).throughput / n / first for n in counts[1:]]
        if not found:
            raise InputError(f"no counts to compare for {', '.join(names)} on {', '.join(systems)}")
        return found
