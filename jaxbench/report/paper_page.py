"""The page of the paper's claims: Markdown, a table per convention and what stands behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from jaxbench.readings.paper.evidence import CONTRADICTED, VERDICTS

INTRODUCTION = """# The claims of arXiv 2609.00817, asked of the simulator

Written by `jaxbench reproduce-paper`. Each claim was asked of the simulator at the configurations
of the paper's campaign; no parameter is fitted to the paper. What is simulated is the same program
that `jaxbench run` executes, with collectives priced by the formulas of `jaxbench simulate` on the
systems of `meshes/`.

Verdicts: *reproduced*; *reproduced only with an effect* that has to be put in, which is named;
*contradicted*, where the simulated values say otherwise; *out of a fluid model's reach*, where the
claim is about noise, stalls or loads that such a model can't give.

Communication is the paper's measure, the time that ranks are blocked over that of the step: it
contains the pipeline's bubble. `true` computes what the models really have at the hardware's MFU,
`dlnetbench` what the original's formulas say at 100 % of peak."""


def page(answers: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return the page for {convention: the answers of `claims.to_json`}."""
    parts = [INTRODUCTION]
    for convention, rows in answers.items():
        counts = Counter(row["verdict"] for row in rows)
        summary = ", ".join(f"{counts[v]} {v}" for v in VERDICTS if counts[v])
        parts.append(f"## Convention `{convention}`: {summary}")
        lines = ["| # | claim | where | simulated | verdict |", "|---|---|---|---|---|"]
        lines += [_row(row) for row in rows]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _row(row: Mapping[str, Any]) -> str:
    verdict = row["verdict"]
    if row["depends_on"]:
        even = "even with " if verdict == CONTRADICTED else ""
        verdict += f" ({even}{row['depends_on']})"
    cells = (str(row["claim"]), row["text"], row["where"], row["said"], verdict)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
