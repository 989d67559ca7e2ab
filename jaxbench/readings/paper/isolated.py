"""Claims about jobs that run alone: how much they communicate, and how they scale."""

from __future__ import annotations

from jaxbench.catalog.hardware import find_hardware
from jaxbench.catalog.systems import find_system
from jaxbench.readings.paper.campaign import (
    FSDP,
    HYBRIDS,
    LARGE,
    PIPELINES,
    SMALL_COUNTS,
    Campaign,
)
from jaxbench.readings.paper.evidence import Evidence, ends, judge, span

NODE, RACK = "dgx_a100", "gb300_nvl72"
DP, TENSOR, EXPERT = "dp_vit_h14", "dp_pp_tp_llama3_70b", "dp_pp_ep_mixtral_8x7b"
WIDE = {"grad_dtype": "float32"}  # gradients on the wire with 4 bytes an element
WIDE_SAID = "gradients of 4 bytes on the wire"


def small_in_a_node(c: Campaign) -> Evidence:
    """1: both halves, over all strategies that fit a node."""
    names = tuple(SMALL_COUNTS)
    relevance = c.relevances(names, (NODE,), small=True)
    efficiency = c.efficiencies(names, (NODE,), small=True)
    holds = max(relevance) <= 0.11 and min(efficiency) >= 0.99
    said = f"communication {span(relevance)}, efficiency {span(efficiency)}"
    return judge(holds, said, ends("relevance", relevance) | ends("efficiency", efficiency))


def dp_on_a_rack(c: Campaign) -> Evidence:
    """2: dp from 8 GPUs on, the others between their own counts."""
    others = c.efficiencies((*FSDP, *PIPELINES), (RACK,))

    def at_scale(**flags: str) -> list[float]:
        first = c.predict(DP, RACK, 2, **flags).throughput / 2
        return [c.predict(DP, RACK, n, **flags).throughput / n / first for n in (32, 64)]

    plain, wide = at_scale(), at_scale(**WIDE)
    near = min(others) >= 0.95
    said = f"dp {span(plain)} at 32-64 GPUs ({span(wide)} with {WIDE_SAID}), others {span(others)}"
    values = ends("dp", plain) | ends("dp_wide", wide) | ends("others", others)

    def lost(found: list[float]) -> bool:
        return near and 0.75 <= min(found) and max(found) <= 0.90

    return judge(lost(plain), said, values, effect=WIDE_SAID, with_effect=lost(wide))


def much_on_a_rack(c: Campaign) -> Evidence:
    """3: the largest share of any configuration on a rack."""
    names = (DP, *FSDP, *PIPELINES)
    plain, wide = c.relevances(names, (RACK,)), c.relevances(names, (RACK,), WIDE)
    said = f"at most {100 * max(plain):.0f} % ({100 * max(wide):.0f} % with {WIDE_SAID})"
    values = ends("relevance", plain) | ends("relevance_wide", wide)

    def some(found: list[float]) -> bool:
        return 0.41 <= max(found)

    return judge(some(plain), said, values, effect=WIDE_SAID, with_effect=some(wide))


def fsdp_communicates_little(c: Campaign) -> Evidence:
    """4."""
    relevance = c.relevances(FSDP, LARGE)
    return judge(max(relevance) < 0.10, span(relevance), ends("relevance", relevance))


def hybrids_communicate(c: Campaign) -> Evidence:
    """5: relevance contains the bubble, as the paper's does."""
    relevance = c.relevances(HYBRIDS, LARGE)
    alps = c.relevances((*PIPELINES, TENSOR), ("alps",))
    bubbles = [c.predict(PIPELINES[0], "alps", 64), c.predict(TENSOR, "alps", 512)]
    bubble = [p.bubble_s / p.step_s for p in bubbles]
    holds = min(relevance) >= 0.25 and max(relevance) <= 0.62
    said = f"{span(relevance)}, Alps {span(alps)}; of it bubble {span(bubble)} of the step"
    return judge(
        holds, said, ends("relevance", relevance) | ends("alps", alps) | ends("bubble", bubble)
    )


def dp_communicates_most(c: Campaign) -> Evidence:
    """6: at 32 and 64 GPUs; 'often' is taken as half of the configurations."""

    def at_scale(**flags: str) -> list[float]:
        return [
            c.predict(DP, system, n, **flags).communication_relevance
            for system in LARGE
            for n in (32, 64)
        ]

    plain, wide = at_scale(), at_scale(**WIDE)
    said = f"{span(plain)} ({span(wide)} with {WIDE_SAID})"
    values = ends("relevance", plain) | ends("relevance_wide", wide)

    def often(found: list[float]) -> bool:
        return sum(value > 0.70 for value in found) >= len(found) / 2

    return judge(often(plain), said, values, effect=WIDE_SAID, with_effect=often(wide))


def hybrids_scale(c: Campaign) -> Evidence:
    """7: efficiency of all hybrids; a step with nodes spread over groups against nodes in order."""
    efficiency = c.efficiencies(HYBRIDS, LARGE)
    moved = [
        c.predict(name, system, n, "inter-group").step_s / c.predict(name, system, n).step_s
        for name, n in ((PIPELINES[0], 64), (TENSOR, 256), (EXPERT, 512))
        for system in LARGE
    ]
    holds = min(efficiency) >= 0.90 and max(moved) <= 1.05
    said = f"efficiency {span(efficiency)}; inter-group steps {span([m - 1 for m in moved])} longer"
    return judge(holds, said, ends("efficiency", efficiency) | ends("spread_over_packed", moved))


def experts_communicate_half(c: Campaign) -> Evidence:
    """8."""
    p = c.predict(EXPERT, "leonardo", 1024)
    relevance, bubble = p.communication_relevance, p.bubble_s / p.step_s
    said = f"{100 * relevance:.1f} %, of it bubble {100 * bubble:.1f} %"
    values = {"relevance": relevance, "bubble": bubble}
    return judge(0.40 <= relevance <= 0.60, said, values)


def throughput_follows_compute(c: Campaign) -> Evidence:
    """9: order of systems by throughput against that by compute, and JUPITER over Alps."""

    def peak(system: str) -> float:
        hardware = find_hardware(find_system(system).hardware)
        return hardware.dlnetbench_FLOPs or hardware.bfloat16_FLOPs

    throughput = {s: c.predict(TENSOR, s, 256).throughput for s in LARGE}
    ratio = throughput["jupiter"] / throughput["alps"]
    by_peak = sorted(("alps", "leonardo", "lumi_g"), key=peak)
    by_throughput = sorted(("alps", "leonardo", "lumi_g"), key=throughput.__getitem__)
    holds = by_peak == by_throughput and 0.9 <= ratio <= 1.1
    order = " < ".join(by_throughput)
    said = f"JUPITER / Alps {ratio:.3f}; {order} (dp_pp_tp, 256 GPUs)"
    return judge(holds, said, {"jupiter_over_alps": ratio, **throughput})


def fewer_groups_are_better(c: Campaign) -> Evidence:
    """10: nodes in order (few groups) against nodes in all groups, alone on the system."""
    gains = [
        c.predict(TENSOR, system, 1024, "inter-group").step_s
        / c.predict(TENSOR, system, 1024).step_s
        - 1
        for system in ("jupiter", "leonardo")
    ]
    said = f"steps are {span(gains)} longer over all groups than over few, alone on the system"
    return judge(min(gains) >= 0.01, said, ends("longer", gains))


def over_the_boundary(c: Campaign) -> Evidence:
    """20: dp and the hybrids, inside of a node or rack and beyond it."""
    inside = c.relevances((DP, *FSDP), (NODE,), small=True)
    beyond = c.relevances((DP, *HYBRIDS), LARGE)
    wide = c.relevances((DP,), LARGE, WIDE)
    said = f"{span(inside)} in a node, {span(beyond)} beyond it ({span(wide)} dp with {WIDE_SAID})"
    values = ends("inside", inside) | ends("beyond", beyond) | ends("dp_wide", wide)
    small = max(inside) <= 0.11
    return judge(
        small and max(beyond) > 0.70,
        said,
        values,
        effect=WIDE_SAID,
        with_effect=small and max(wide) > 0.70,
    )
