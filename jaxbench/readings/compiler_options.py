"""What XLA must leave alone, per platform, so that the program that runs is the one written.

    lowered.compile(compiler_options=compiler_options("gpu"))

XLA ignores the name of a pass it doesn't have, without a word, and names change. So each row was
found by compiling a program with and without it (jax 0.10.2), tests do the same again, and every
measured program is compared with its plan anyway.
"""

from __future__ import annotations

from jaxbench.errors import InputError, unknown

# Name of the pass -> what it does to a program's collectives.
_CPU = {
    "cpu-all-reduce-combiner": "merges all-reduces into one with several operands, at any size",
    "cse": "merges a gather with an equal earlier one, as FSDP's backward re-gather",
    "while-loop-invariant-code-motion": "moves collectives of unchanged buffers out of loops",
}

_GPU = {
    "gpu-all-reduce-combiner": "concatenates the operands of all-reduces into one",
    "gpu-all-gather-combiner": "merges all-gathers into one with several operands",
    "gpu-reduce-scatter-combiner": "merges reduce-scatters into one with several operands",
    "collective-permute-combiner": "merges permutes into one with several operands",
    "cse": "merges a gather with an equal earlier one",
    "host-offloader": "does the same: it runs a common subexpression elimination of its own",
    "all-reduce-reassociate": "makes psum(a) + psum(b) one all-reduce of a + b",
    "reduce-scatter-reassociate": "the same for reduce-scatters",
    "all-gather-optimizer": "the same for all-gathers",
    "all-reduce-folder": "makes an all-reduce of an all-reduce one over larger groups",
    "all-gather-bcast-reorder": "gathers what is broadcast, and broadcasts afterwards",
    "collective-quantizer": "lets a narrower type travel where a conversion follows or precedes",
    "while-loop-all-reduce-code-motion": "moves all-reduces that a loop adds up behind the loop",
    # The rest changed no program here; they are off because of what their source says they do.
    "reduce-scatter-creator": "makes an all-reduce of which a rank reads its part a reduce-scatter",
    "all-reduce-simplifier": "removes all-reduces of equal values",
    "all-gather-dynamic-slice-simplifier": "removes an all-gather of which a rank reads its part",
    "collective-pipeliner-forward": "moves collectives of a loop into the next iteration",
    "collective-pipeliner-backward": "moves collectives of a loop into the iteration before",
}

# Nothing switches off the merging of equal gathers on TPU: that takes a tie in the program.
_TPU = {
    "all-reduce-combiner": "merges all-reduces into one with several operands",
    "all-reduce-reassociate": "makes psum(a) + psum(b) one all-reduce of a + b",
    "reduce-scatter-reassociate": "the same for reduce-scatters",
    "while-loop-all-reduce-code-motion": "moves all-reduces that a loop adds up behind the loop",
    "while-loop-invariant-code-motion": "moves collectives of unchanged buffers out of loops",
    "bfloat16-propagation": "lets bf16 travel where only bf16 is made of it",
}

# `gpu` is what jax.default_backend() says for both makers. ROCm was not compiled: its passes are
# those of the shared GPU compiler.
DISABLED_PASSES: dict[str, dict[str, str]] = {
    "cpu": _CPU,
    "gpu": _GPU,
    "cuda": _GPU,
    "rocm": _GPU,
    "tpu": _TPU,
}


def compiler_options(platform: str, allow: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return the `compiler_options` with which `platform` keeps a program's collectives.

    `allow` names passes to leave on, for tests that show what a pass would do. Raises InputError
    for a platform or pass that isn't in `DISABLED_PASSES`.
    """
    if platform not in DISABLED_PASSES:
        raise InputError(unknown("platform", platform, DISABLED_PASSES))
    passes = DISABLED_PASSES[platform]
    faults = [unknown(f"{platform} pass", name, passes) for name in sorted(allow - passes.keys())]
    if faults:
        raise InputError(faults)
    disabled = ",".join(name for name in passes if name not in allow)
    return {"xla_disable_hlo_passes": disabled} if disabled else {}
