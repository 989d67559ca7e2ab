"""From the words of a call to what a subcommand works with: its flags, resolved and checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from jaxbench.cli.flagfile import override, read_flagfile, read_run
from jaxbench.cli.flags import (
    EXPERIMENT_FLAGS,
    FLAGS,
    Parsed,
    foreign_flags,
    parse_words,
    split_arguments,
    split_flagfiles,
)
from jaxbench.errors import InputError
from jaxbench.experiment import Experiment


class Command(NamedTuple):
    """A call of a subcommand: its own flags, and its experiments, each under its run's name."""

    values: dict[str, str]
    experiments: list[tuple[str, Experiment]]
    faults: list[str]


class Words(NamedTuple):
    """The flags of a call, by where they stand; `complete` is False if a file couldn't be read."""

    line: dict[str, str]
    files: dict[str, str]
    faults: list[str]
    complete: bool


class Call(NamedTuple):
    """A call of a subcommand without experiments: its flags, and the words that stand alone."""

    values: dict[str, str]
    arguments: list[str]
    faults: list[str]


def read_call(
    name: str, words: Sequence[str], taken: Sequence[str], arguments: Sequence[str] = ()
) -> Call:
    """Return the call of subcommand `name`, which takes flags and a word for each of `arguments`.

    With faults, there may be another number of these.
    """
    rest, alone = split_arguments(words)
    line, files, faults, _ = read_words(name, rest, taken)
    given = override(files, line)
    values = {key: given.get(key, "").strip() or FLAGS[key].default or "" for key in taken}
    if not arguments:
        faults = faults + [
            f"unexpected argument '{word}'; flags are written --name=value" for word in alone
        ]
    elif not faults and len(alone) != len(arguments):
        found = f"got {len(alone)}: {' '.join(alone)}" if alone else "got none"
        faults = [f"{name} takes {len(arguments)} arguments, {' '.join(arguments)}; {found}"]
    return Call(values, alone, faults)


def read_words(name: str, words: Sequence[str], taken: Sequence[str]) -> Words:
    """Read the command line and its flagfiles.

    A flag that only other subcommands take is a fault on the command line, but not in a
    flagfile: one file serves all.
    """
    rest, flagfiles = split_flagfiles(words)
    line, faults = parse_words(rest)
    faults = [*faults, *foreign_flags(name, line, taken)]
    files: dict[str, str] = {}
    complete = True
    for flagfile in flagfiles:
        try:
            read = read_flagfile(flagfile)
        except InputError as error:
            faults += error.faults
            complete = False
        else:
            files = override(files, read.values)
            faults += read.faults
    return Words(line, files, faults, complete)


def read_command(name: str, words: Sequence[str], taken: Sequence[str]) -> Command:
    """Return the resolved call of subcommand `name`, which takes the flags `taken`.

    Its `faults` are all those of flags, flagfiles and experiments; with any of them the
    experiments are not complete.
    """
    line, files, faults, complete = read_words(name, words, taken)
    own = {key: FLAGS[key].default or "" for key in taken if key not in EXPERIMENT_FLAGS}
    given = override(files, line)
    values = {**own, **{key: given[key] for key in own if given.get(key)}}
    runs = [run.strip() for run in values.get("runs", "").split(",") if run.strip()]
    experiments: list[tuple[str, Experiment]] = []
    run_faults: list[tuple[str, str]] = []
    for run in (runs or [""]) if complete else []:
        try:
            read = read_run(run) if run else Parsed({}, [])
        except InputError as error:
            run_faults += [("", fault) for fault in error.faults]
            continue
        run_faults += [("", fault) for fault in read.faults]
        flags = override(read.values, files, line)
        try:
            experiment = Experiment.from_flags(
                {key: flags[key] for key in EXPERIMENT_FLAGS if key in flags}
            )
        except InputError as error:
            run_faults += [(run, fault) for fault in error.faults]
        else:
            experiments.append((run or experiment.strategy, experiment))
    return Command(values, experiments, faults + told_once(run_faults))


def told_once(run_faults: Sequence[tuple[str, str]]) -> list[str]:
    """Return each fault once, with the name of its run if it concerns one run only."""
    counts = Counter(fault for _, fault in run_faults)
    texts = [
        f"{run}: {fault}" if run and counts[fault] == 1 else fault for run, fault in run_faults
    ]
    return list(dict.fromkeys(texts))
