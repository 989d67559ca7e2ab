"""The command `jaxbench`: finds the subcommand, and turns how it ends into an exit code.

0 ok, 2 bad input, 1 a failure, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from jaxbench import __version__
from jaxbench.errors import InputError, RunError, unknown
from jaxbench.launch.environment import ensure_environment
from jaxbench.launch.world import first_of_launched
from jaxbench.measure.processes import here

# Each module has a docstring (what it does and two examples), FLAGS (the names of the flags it
# takes), STARTS_BACKEND and main(words) -> exit code. Only the one that is called is imported.
COMMANDS: dict[str, str] = {
    "run": "jaxbench.cli.run",
    "plan": "jaxbench.cli.plan",
    "simulate": "jaxbench.cli.simulate",
    "advise": "jaxbench.cli.advise",
    "collectives": "jaxbench.cli.collectives",
    "sweep": "jaxbench.cli.sweep",
    "compare": "jaxbench.cli.compare",
    "doctor": "jaxbench.cli.doctor",
    "slurm": "jaxbench.cli.slurm",
    "reproduce-paper": "jaxbench.cli.reproduce_paper",
}

SUMMARIES: dict[str, str] = {
    "run": "run strategies on a real or virtual device mesh, check and record them",
    "plan": "say what strategies will communicate, without devices",
    "simulate": "predict steps on any system at any scale, without devices",
    "advise": "rank strategies and mesh shapes for a model on a system",
    "collectives": "time collectives one by one, as nccl-tests does",
    "sweep": "run every combination of flags, each in a process of its own",
    "compare": "say of two sets of results whether one is slower",
    "doctor": "check this installation and say what is wrong",
    "slurm": "write the job script for a cluster, or submit it",
    "reproduce-paper": "ask the simulator for the claims of arXiv 2609.00817",
}

HELP = ("--help", "-h", "-help", "--helpfull", "help")


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived: a scheduler wants the process to end. What is recorded is kept."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these words (default: those of the process); return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["--version"]:
        print(f"jaxbench {__version__}")
        return 0
    if not words or words[0] in HELP:
        print(overview(), file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    name, rest = words[0], words[1:]
    if name.startswith("-"):
        return say_faults("jaxbench", ["the command comes first, as in jaxbench run --devices=8"])
    if name not in COMMANDS:
        return say_faults("jaxbench", [unknown("command", name, COMMANDS)])
    module = import_module(COMMANDS[name])
    if any(word in HELP[:-1] for word in rest):
        print(command_help(name, module))
        return 0
    if argv is None and module.STARTS_BACKEND:
        ensure_environment()
    return guarded(name, module, rest)


def guarded(name: str, module: ModuleType, words: Sequence[str]) -> int:
    """Call a subcommand; say in one line what went wrong. JAXBENCH_TRACEBACK=1 shows where.

    Of many processes, all end together, and process 0 says why.
    """
    who = f"jaxbench {name}"
    previous = signal.signal(signal.SIGTERM, _terminate)
    sys.unraisablehook = _deliver_again
    try:
        code = module.main(list(words))
        return here().leave(code)  # those whom `main` has joined
    except InputError as error:
        return say_faults(who, error.faults)
    except Terminated:
        return _say(who, "terminated; what is recorded is kept", 143)
    except KeyboardInterrupt:
        return _say(who, "interrupted; what is recorded is kept", 130)
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return here().leave(0)
    except RunError as error:
        return _say(who, str(error), 1)
    except Exception as error:
        if os.environ.get("JAXBENCH_TRACEBACK"):
            traceback.print_exc()
        first = (str(error).strip().splitlines() or ["no message"])[0]
        text = f"failed: {type(error).__name__}: {first} (JAXBENCH_TRACEBACK=1 shows more)"
        return _say(who, text, 1)
    except SystemExit as ended:
        here().fail(1, f"ended by exit({ended.code})")
        raise
    finally:
        signal.signal(signal.SIGTERM, previous)
        sys.unraisablehook = sys.__unraisablehook__


def say_faults(who: str, faults: Sequence[str]) -> int:
    """Print what is wrong with the input, one line each; return the exit code."""
    if len(faults) == 1:
        return _say(who, faults[0], 2)
    return _say(who, "\n  ".join([f"{len(faults)} faults:", *faults]), 2)


def _say(who: str, text: str, code: int) -> int:
    """Print why it ends, once for all processes, and return the exit code."""
    here().fail(code, text)
    if first_of_launched(os.environ):
        try:
            print(f"{who}: {text}", file=sys.stderr, flush=True)
        except OSError:  # nobody reads it any more; nor may the interpreter fail at that at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    return code


def overview() -> str:
    """Return the help of the command itself."""
    rows = "\n".join(f"  {name:<15} {SUMMARIES[name]}" for name in COMMANDS)
    return f"""jaxbench {__version__}: how distributed AI training behaves on a machine.

usage: jaxbench COMMAND [--flag=value ...]

commands:
{rows}

jaxbench COMMAND --help shows its flags and examples."""


def command_help(name: str, module: ModuleType) -> str:
    """Return the help of a subcommand: its docstring, then its flags with their defaults."""
    from jaxbench.cli.help import describe_flags

    return f"jaxbench {name}: {(module.__doc__ or '').strip()}\n\n{describe_flags(module.FLAGS)}"


def _deliver_again(lost: sys.UnraisableHookArgs) -> None:
    """Send a signal once more whose exception was raised where Python drops all of them.

    Such places are the callbacks of garbage collection, of which JAX has one.
    """
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    number = signal.SIGTERM if issubclass(lost.exc_type, Terminated) else signal.SIGINT
    threading.Timer(0.05, os.kill, (os.getpid(), number)).start()


def _terminate(_signal: int, _frame: object) -> None:
    raise Terminated
