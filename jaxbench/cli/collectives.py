"""time collectives one by one, by size, dtype and mesh axis, as nccl-tests does.

Every program is checked before it is timed: the collectives that XLA kept, and the values.
Sizes are counted as by nccl-tests: all_reduce, reduce_scatter, all_to_all and reduce a rank's
input; all_gather its output; permute the message; broadcast the root's data. They are rounded up
to whole elements, and to equal parts where there is one a rank.
JAX has no broadcast and no reduce on every backend: what runs is a psum of zeros but for the
root's data, and a psum whose result only the root needs. permute sends to the next rank of a ring.

time is that of one collective among many in a row, step that of one dispatched alone.

examples:
  jaxbench collectives --devices=4 --dtype=float32 --max_bytes=1M --steps=20
  jaxbench collectives --mesh=data=2,tensor=4 --axis=tensor --kinds=all_reduce --format=nccl
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jaxbench.cli.command import read_words
from jaxbench.cli.flagfile import override
from jaxbench.cli.flags import FLAGS as ALL_FLAGS
from jaxbench.errors import InputError, unknown
from jaxbench.measure.collectives.fit_file import writable_fault
from jaxbench.measure.collectives.request import Request, read_request
from jaxbench.measure.record import FILE_NAME, writable_faults
from jaxbench.report.nccl_table import FORMATS, print_collectives

FLAGS = (
    "kinds",
    "devices",
    "mesh",
    "axis",
    "ranks",
    "dtype",
    "min_bytes",
    "max_bytes",
    "factor",
    "padding",
    "steps",
    "warmup",
    "seed",
    "expect_devices",
    "out",
    "fit",
    "format",
    "flagfile",
)
STARTS_BACKEND = True


def main(words: Sequence[str]) -> int:
    """Measure; return 0 if all cells are done and their checks passed."""
    request, form = read(words)

    from jaxbench.launch.start import start

    start(request.devices, [request.expect_devices] if request.expect_devices else [])

    from jaxbench.measure.collectives.job import Outcome, run_collectives

    def report(outcome: Outcome) -> None:
        if outcome.records:
            print_collectives(outcome.records, outcome.fits, form)
            if form != "json":
                note = "# " if form == "nccl" else ""
                print(f"{note}records: {Path(request.out) / FILE_NAME}", flush=True)

    command = ["jaxbench", "collectives", *words]
    return 0 if run_collectives(request, command=command, report=report).complete else 1


def read(words: Sequence[str]) -> tuple[Request, str]:
    """Return what the words ask for, and the format; InputError with all that is wrong."""
    line, files, faults, complete = read_words("collectives", words, FLAGS)
    given = {name: text for name, text in override(files, line).items() if name in FLAGS}
    form = given.get("format", "").strip() or ALL_FLAGS["format"].default or ""
    faults = list(faults)
    if form not in FORMATS:
        faults.append(unknown("format", form, FORMATS))
    request = None
    if complete:
        try:
            request = read_request(given)
        except InputError as error:
            faults += error.faults
        else:
            faults += writable_faults(request.out)
            if request.fit and (fault := writable_fault(request.fit)):
                faults.append(fault)
    if faults or request is None:
        raise InputError(faults)
    return request, form
