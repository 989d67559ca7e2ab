"""What the paper claims, and how each claim is asked: a row per claim, in the paper's order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxbench.readings.paper import concurrent, isolated
from jaxbench.readings.paper.campaign import Campaign
from jaxbench.readings.paper.evidence import Evidence


@dataclass(frozen=True)
class Claim:
    """A claim in our words, where the paper makes it, and the question to the simulator."""

    number: int
    text: str
    where: str
    ask: Callable[[Campaign], Evidence]


CLAIMS: tuple[Claim, ...] = (
    Claim(
        1,
        "communication below about 10 %, efficiency at least 99 %, all strategies",
        "DGX A100, 2-8 GPUs",
        isolated.small_in_a_node,
    ),
    Claim(
        2,
        "dp efficiency 80-85 % at 32-64 GPUs, the others near ideal",
        "NVL72",
        isolated.dp_on_a_rack,
    ),
    Claim(
        3,
        "communication 41-58 % in some configurations at larger scale",
        "NVL72",
        isolated.much_on_a_rack,
    ),
    Claim(
        4,
        "fsdp communication below 10 %",
        "all large systems",
        isolated.fsdp_communicates_little,
    ),
    Claim(
        5,
        "hybrids 30-50 % (on Alps dp_pp and dp_pp_tp 40-60 %)",
        "all large systems",
        isolated.hybrids_communicate,
    ),
    Claim(
        6,
        "dp often above 70 % at larger scale",
        "all large systems",
        isolated.dp_communicates_most,
    ),
    Claim(
        7,
        "hybrids scale near-ideally; placement hardly matters in isolation",
        "all large systems",
        isolated.hybrids_scale,
    ),
    Claim(
        8,
        "dp_pp_ep spends about half its time communicating",
        "Leonardo, 1024 GPUs",
        isolated.experts_communicate_half,
    ),
    Claim(
        9,
        "throughput follows compute; JUPITER about equal to Alps",
        "all large systems",
        isolated.throughput_follows_compute,
    ),
    Claim(
        10,
        "fewer groups scale better than 17-18 groups",
        "JUPITER, Leonardo dp_pp_tp",
        isolated.fewer_groups_are_better,
    ),
    Claim(
        11,
        "slowdowns mostly below 10-15 %, outliers to 21x",
        "DGX A100, concurrent",
        concurrent.in_a_node,
    ),
    Claim(
        12,
        "slowdown below 1.5 %, rarely 4 %",
        "NVL72, concurrent",
        concurrent.in_a_rack,
    ),
    Claim(
        13,
        "224-GPU llama3_70b dp_pp_tp: mean slowdown 15 % -> 5 % with 4 nodes per switch",
        "JUPITER",
        concurrent.nodes_per_switch,
    ),
    Claim(
        14,
        "65 % mean slowdown of 1K-GPU dp_pp_ep without reservation over > 10 groups",
        "Leonardo",
        concurrent.without_reservation,
    ),
    Claim(
        15,
        "106x for some 8-GPU dp runs, inter-group",
        "Leonardo",
        concurrent.worst_outlier,
    ),
    Claim(
        16,
        "fsdp up to 60 % slower in isolated runs with 3-7 % communication; dp variance high",
        "Alps",
        concurrent.isolated_variance,
    ),
    Claim(
        17,
        "hybrids: no significant slowdown; dp variance high",
        "LUMI",
        concurrent.hybrids_undisturbed,
    ),
    Claim(
        18,
        "production runs vary more than reservations, except dp_pp",
        "JUPITER",
        concurrent.production_varies,
    ),
    Claim(
        19,
        "Leonardo congests less than JUPITER: slower GPUs make communication less relevant",
        "Leonardo, JUPITER",
        concurrent.slower_devices_congest_less,
    ),
    Claim(
        20,
        "communication is small inside a node or rack, and 30 % to over 70 % beyond it",
        "all",
        isolated.over_the_boundary,
    ),
)


def ask_all(campaign: Campaign) -> list[tuple[Claim, Evidence]]:
    """Ask every claim under the convention of a campaign."""
    return [(claim, claim.ask(campaign)) for claim in CLAIMS]


def to_json(answers: list[tuple[Claim, Evidence]]) -> list[dict[str, Any]]:
    """Return the answers as plain values."""
    return [
        {
            "claim": claim.number,
            "text": claim.text,
            "where": claim.where,
            "verdict": evidence.verdict,
            "values": evidence.values,
            "depends_on": evidence.depends_on,
            "said": evidence.said,
        }
        for claim, evidence in answers
    ]
