"""time collectives one by one, by size, dtype and mesh axis, as nccl-tests does.

Every program is checked before it is timed: the collectives that XLA kept, and the values.
Sizes are counted as by nccl-tests: all_reduce, reduce_scatter, all_to_all and reduce a rank's
input; all_gather its output; permute the message; broadcast the root's data. They are rounded up
to whole elements, and to equal parts where there is one a rank.
JAX has no broadcast and no reduce on every backend: what runs is a psum of zeros but for the
root's data, and a psum whose result only the root needs. permute sends to the next rank of a ring.

time is that of one collective among many in a row, step that of one dispatched alone. A step finds
processors asleep and other buffers in caches: --pause_s and --messages time collectives so.

examples:
  jaxbench collectives --devices=4 --dtype=float32 --max_bytes=1M --steps=20
  jaxbench collectives --mesh=data=2,tensor=4 --axis=tensor --kinds=all_reduce --format=nccl
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from jaxbench.cli.command import read_words
from jaxbench.cli.flagfile import override
from jaxbench.cli.flags import FLAGS as ALL_FLAGS
from jaxbench.cli.flags import PROCESS_FLAGS
from jaxbench.cli.processes import meet, same_experiments
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
    "messages",
    "pause_s",
    "padding",
    "steps",
    "warmup",
    "seed",
    "expect_devices",
    *PROCESS_FLAGS,
    "out",
    "fit",
    "format",
    "flagfile",
)
STARTS_BACKEND = True


def main(words: Sequence[str]) -> int:
    """Measure; return 0 if all cells are done and their checks passed."""
    faults: Sequence[str] = ()
    request, form = None, ""
    try:
        request, form = read(words, writes=False)
    except InputError as error:
        faults = error.faults
    line, files, _, _ = read_words("collectives", words, FLAGS)
    given = override(files, line)
    code = meet(given, "jaxbench collectives", faults, partial(write_faults, given))
    if code is not None:
        return code
    assert request is not None  # else there were faults
    paths = ("out", "fit")
    same_experiments([{k: v for k, v in vars(request).items() if k not in paths}])

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


def read(words: Sequence[str], *, writes: bool = True) -> tuple[Request, str]:
    """Return what the words ask for, and the format; InputError with all that is wrong.

    With `writes` this process is to write the results, and must be able to.
    """
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
            faults += write_faults(given) if writes else []
    if faults or request is None:
        raise InputError(faults)
    return request, form


def write_faults(given: Mapping[str, str]) -> list[str]:
    """Return why the results can't be written, which concerns process 0 only."""
    faults = writable_faults(given.get("out", "").strip() or ALL_FLAGS["out"].default or "")
    if (fit := given.get("fit", "").strip()) and (fault := writable_fault(fit)):
        faults.append(fault)
    return faults
