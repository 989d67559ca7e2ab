"""The plan as text."""

from __future__ import annotations

from jaxbench.readings.plan import Plan, Row
from jaxbench.table import plain_table
from jaxbench.units import format_bytes, format_count, format_seconds

HEADER = (
    "collective",
    "axis",
    "groups",
    "of",
    "count",
    "useful",
    "elements",
    "shard",
    "sent",
    "dtype",
    "bytes",
    "wire x",
    "on the wire",
    "what for",
)


def render(plan: Plan) -> str:
    """Return the plan as a title, a table of collectives, and what it computes and holds."""
    compute, memory = plan.compute_s, plan.memory
    spread = format_seconds(float(compute.max()))
    if compute.min() < compute.max():
        spread = f"{format_seconds(float(compute.min()))} to {spread}"
    total = sum(row.count * row.bytes_wire for row in plan.rows)
    lines = [
        plan.experiment.describe(),
        f"{plan.experiment.devices} ranks, global batch {plan.workload.global_batch} samples; "
        "per rank and step:",
        "",
        plain_table(HEADER, [row_cells(row) for row in plan.rows]),
        "",
        f"compute    {spread}",
        f"wire       {format_bytes(total)} sent with ring algorithms (wire x bytes, times count)",
        f"memory     {format_bytes(memory.total_bytes)} per device: "
        f"buffers {format_bytes(memory.buffer_bytes)}, "
        f"at most {format_bytes(memory.temporary_bytes)} beside",
        f"schedule   {plan.schedule}" if plan.schedule else "",
        *(f"warning    {note}" for note in plan.experiment.notes),
    ]
    return "\n".join(line for number, line in enumerate(lines) if line or number in (2, 4))


def row_cells(row: Row) -> tuple[str, ...]:
    """Return the cells of a collective, as HEADER names them."""
    count = str(row.count) if row.count == row.count_min else f"{row.count_min}-{row.count}"
    before = "" if row.full_elements == row.elements else f"{format_count(row.full_elements)} -> "
    return (
        row.kind,
        row.axis,
        str(row.groups),
        str(row.group_size),
        count,
        str(row.useful),
        before + format_count(row.elements),
        format_count(row.shard_elements),
        format_count(row.padded_elements),
        row.dtype,
        format_bytes(row.bytes_logical),
        f"{row.wire_factor:.4g}",
        format_bytes(row.bytes_wire),
        _labels(row.labels),
    )


def _labels(labels: dict[str, int]) -> str:
    """Say what a collective is for, every label with its count: 'mlp forward 160, ...'."""
    return ", ".join(f"{name} {count}" for name, count in labels.items())
