"""The seven placement classes of the paper (arXiv 2609.00817), and which strategies use them."""

from __future__ import annotations

from typing import NamedTuple


class PlacementClass(NamedTuple):
    """Nodes within one `scope` ('leaf', 'group') or over all groups ('system').

    They come in blocks of `block` nodes under one leaf switch. `score` is the paper's locality
    score: 1 is closest, 3 farthest.
    """

    scope: str
    block: int
    score: float


PLACEMENTS: dict[str, PlacementClass] = {
    "intra-l1": PlacementClass("leaf", 1, 1.0),
    "intra-group-same-l1-4": PlacementClass("group", 4, 1.2),
    "intra-group-same-l1-2": PlacementClass("group", 2, 1.5),
    "intra-group": PlacementClass("group", 1, 2.0),
    "inter-group-same-l1-4": PlacementClass("system", 4, 2.25),
    "inter-group-same-l1-2": PlacementClass("system", 2, 2.5),
    "inter-group": PlacementClass("system", 1, 3.0),
}

# A placement vector has a class per job; its score is their mean, low up to the first bound,
# medium up to the second.
SCORE_BOUNDS = (1.67, 2.33)


class Allowed(NamedTuple):
    """Classes that the paper's campaign gives a strategy: in its baseline, and in extensions."""

    baseline: tuple[str, ...]
    extension: tuple[str, ...] = ()


ALLOWED_PLACEMENTS: dict[str, Allowed] = {
    "dp": Allowed(("intra-l1", "intra-group", "inter-group")),
    "fsdp": Allowed(
        ("intra-l1", "intra-group-same-l1-2", "inter-group-same-l1-2"),
        ("intra-group", "inter-group"),
    ),
    "dp_pp": Allowed(
        ("intra-l1", "intra-group-same-l1-2", "inter-group-same-l1-2", "inter-group"),
        ("intra-group",),
    ),
    "dp_pp_tp": Allowed(
        ("intra-group-same-l1-4", "inter-group-same-l1-4", "inter-group"), ("intra-group",)
    ),
    "dp_pp_ep": Allowed(("intra-group", "inter-group")),
}
