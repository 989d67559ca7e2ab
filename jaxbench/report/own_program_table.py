"""A user's program as text: its plan, and what it takes on a system."""

from __future__ import annotations

from jaxbench.readings.own_program_plan import OwnPlan
from jaxbench.readings.own_program_predict import OwnPrediction
from jaxbench.readings.own_program_roofline import Roofline
from jaxbench.report.plan_text import HEADER, row_cells
from jaxbench.report.simulate_table import print_uses, streams_text
from jaxbench.table import plain_table
from jaxbench.units import format_bytes, format_seconds, format_share

UNSCALED = ("useful",)  # columns that only a strategy's program has something to say in


def print_own_prediction(prediction: OwnPrediction, roofline: Roofline) -> None:
    """Print a simulated call and its collectives, then what it computes."""
    p = prediction
    print(title(p.plan, roofline))
    print(f"{p.costs}; {streams_text(p.semantics)}")
    print()
    for name, text in {
        "step": f"{format_seconds(p.step_s)} = compute + bubble + skew + transfer + latency",
        "compute": format_seconds(p.compute_s),
        "bubble": format_seconds(p.bubble_s),
        "skew": format_seconds(p.skew_s),
        "transfer": f"{format_seconds(p.transfer_exposed_s)} exposed",
        "latency": f"{format_seconds(p.latency_s)} exposed",
        "comm": f"{format_share(p.communication_share)} of the step is transfer and latency",
        "relevance": f"{format_share(p.communication_relevance)} is the longest blocked time",
    }.items():
        print(f"{name:<10} {text}")
    print()
    print_uses(p.simulation.uses)
    print()
    print(*compute_lines(p.plan), sep="\n")


def title(plan: OwnPlan, roofline: Roofline) -> str:
    """Return what is read, on which mesh, with whose times."""
    hardware = roofline.hardware
    mfu = hardware.default_mfu if roofline.mfu is None else roofline.mfu
    mesh = ",".join(f"{axis}={size}" for axis, size in plan.program.axes)
    return f"{plan.program.name}, {mesh}, times of {hardware.name} at MFU {mfu:.3g}"


def render_own(plan: OwnPlan, roofline: Roofline) -> str:
    """Return the plan as a title, a table of collectives, and what a rank computes and is given."""
    columns = [number for number, name in enumerate(HEADER) if name not in UNSCALED]
    table = [tuple(row_cells(row)[n] for n in columns) for row in plan.rows]
    wire = sum(row.count * row.bytes_wire for row in plan.rows)
    return "\n".join(
        [
            title(plan, roofline),
            f"{plan.program.ranks.count} ranks; per rank and call:",
            "",
            plain_table([HEADER[n] for n in columns], table) if table else "no collectives",
            "",
            f"wire       {format_bytes(wire)} sent with ring algorithms (wire x times count)",
            *compute_lines(plan),
        ]
    )


def compute_lines(plan: OwnPlan) -> list[str]:
    """Return what a rank computes and is given, what was guessed, and what isn't counted."""
    low, high = plan.rank_compute_s.min(), plan.rank_compute_s.max()
    spread = format_seconds(float(high))
    if low < high:
        spread = f"{format_seconds(float(low))} to {spread}"
    parts = ", ".join(f"{what} {format_seconds(s)}" for what, s in plan.compute_s.items())
    flops = ", ".join(f"{count:.4g} in {dtype}" for dtype, count in plan.flops.items()) or "none"
    lines = [
        f"compute    {spread}" + (f": {parts}" if parts else ""),
        f"FLOPs      {flops} (of matrix products and convolutions)",
        f"traffic    {format_bytes(plan.traffic_bytes)} of memory, fused as far as can be",
        f"memory     {format_bytes(plan.argument_bytes)} of arguments, "
        f"{format_bytes(plan.result_bytes)} of results",
    ]
    if plan.unknown:
        guessed = ", ".join(f"{name} x {count}" for name, count in sorted(plan.unknown.items()))
        lines.append(f"guessed    as memory traffic, since their work isn't known: {guessed}")
    return lines + [f"warning    {note}" for note in plan.program.notes]
