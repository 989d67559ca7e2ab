"""A ReFrame check: every strategy runs on a system, is right, and is as fast as is expected there.

    reframe -C site.py -c scripts/reframe/jaxbench_check.py -r
    reframe -C site.py -c scripts/reframe/jaxbench_check.py -n 'JaxbenchCheck%strategy=fsdp' -r

`site.py` is the site's own: jaxbench asks nothing of it but a partition whose jobs find the command
`jaxbench` (or -S executable=...). There is a process for each of 8 ranks; without GPUs there may be
fewer, each with virtual devices: -S num_tasks=2. The rest are ReFrame's own variables, as in
-S num_tasks_per_node=4 -S num_gpus_per_node=4. `flags` are jaxbench's, after the flagfile, so that
they win: -S flags=--devices=64,--model=llama3_8b.

What is read is the line of `jaxbench run --fom`, whose form is a promise: see
jaxbench/report/figure_of_merit.py. Needs ReFrame 4 (pip install 'jaxbench[cluster]').
"""

from __future__ import annotations

import reframe as rfm
import reframe.utility.sanity as sn
import reframe.utility.typecheck as typ
from reframe.core.builtins import (
    parameter,
    performance_function,
    run_after,
    run_before,
    sanity_function,
    variable,
)

# A metric's value here, how much less and more of it is accepted (None: any), and its unit.
Reference = tuple[float, float | None, float | None, str]

# To be filled by the site: strategy -> system:partition -> metric -> reference, as in
#     "dp": {"mysystem:gpu": {"step_s": (0.066, None, 0.05, "s")}}
# for a step of dp that may take 5 % longer than 66 ms. What isn't here is reported only.
REFERENCES: dict[str, dict[str, dict[str, Reference]]] = {}


@rfm.simple_test
class JaxbenchCheck(rfm.RunOnlyRegressionTest):
    """A tiny workload of one strategy."""

    descr = "a step of distributed training, as jaxbench imitates it"
    strategy = parameter(["dp", "fsdp", "dp_pp", "dp_pp_tp", "dp_pp_ep"])
    flags = variable(typ.List[str], value=[])  # pyright: ignore[reportInvalidTypeArguments]

    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "jaxbench"
    num_tasks = 8
    time_limit = "10m"
    keep_files = ["results/runs.jsonl"]

    @run_after("init")
    def take_references(self) -> None:
        """Expect what the site expects of this strategy."""
        self.reference = REFERENCES.get(str(self.strategy), {})

    @run_before("run")
    def set_command(self) -> None:
        """Ask for the figure of merit."""
        flagfile = f"--flagfile=flags/tiny_{self.strategy}.flags"
        self.executable_opts = ["run", flagfile, "--fom", *self.flags]

    @sanity_function
    def is_right(self) -> object:
        """Of all processes together there is one line, and it says that all checks held."""
        line = (
            rf"^FOM status=ok strategy={self.strategy} .* processes={self.num_tasks} "
            ".* values_ok=true plan_equals_compiled=true "
        )
        lines = sn.count(sn.findall("^FOM ", self.stdout))
        one = sn.assert_eq(lines, 1, "{0} lines of jaxbench's --fom, not {1}: see the job's errors")
        return sn.all([one, sn.assert_found(line, self.stdout)])

    @performance_function("s")
    def step_s(self) -> object:
        """The median step."""
        return self.number("step_s")

    @performance_function("samples/s")
    def throughput(self) -> object:
        """Samples of the global batch per second."""
        return self.number("throughput")

    @performance_function("1")
    def communication_share(self) -> object:
        """The share of the step that a faster network could shorten."""
        return self.number("communication_share")

    def number(self, key: str) -> object:
        """Return a number of the line, once it is there."""
        return sn.extractsingle(rf"^FOM .* {key}=(\S+)", self.stdout, 1, float)
