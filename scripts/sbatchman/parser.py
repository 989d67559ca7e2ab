"""What SbatchMan's tables and plots have of jaxbench's jobs: a row per figure of merit.

sbatchman visualize --parser scripts/sbatchman/parser.py
"""

from __future__ import annotations

import json
import re

import sbatchman as sbm

TEXTS = ("status", "strategy", "model", "mesh", "id")


def parse(job: sbm.Job) -> dict[str, list[dict[str, object]]]:
    """Return the rows of a job: the words of its FOM lines, and whose they are."""
    lines = re.findall(r"^FOM (.*)$", job.get_stdout() or "", re.MULTILINE)
    own: dict[str, object] = {"config": job.config_name, "tag": job.tag, "job_id": job.job_id}
    return {"runs": [{**own, **read(line)} for line in lines]}


def read(line: str) -> dict[str, object]:
    """Return the values of a line by their keys; all but names are JSON."""
    words = dict(word.split("=", 1) for word in line.split(" "))
    return {key: text if key in TEXTS else json.loads(text) for key, text in words.items()}
