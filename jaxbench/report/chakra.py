"""A program as Chakra execution traces, which ASTRA-sim and others simulate: one file a rank.

A file is a sequence of protobuf messages, each after its length as a varint: first the metadata,
then the operations of a step in the program's order, each after those that it depends on. Beside
them lies the file of communicator groups that ASTRA-sim wants:

    folder/dp_pp_tp.0.et, dp_pp_tp.1.et, ...     --workload-configuration=folder/dp_pp_tp
    folder/dp_pp_tp.comm_groups.json             --comm-group-configuration=...

A compute has the duration of the timing model, but no count of operations, so leave ASTRA-sim's
roofline off. Messages have bytes and no time: that is what the simulator is asked for. Nobody
waits for the end of a send, and no order is given to what is free to overlap.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from jax.extend.core import ClosedJaxpr

import jaxbench
from jaxbench.axes import mesh_text
from jaxbench.errors import InputError, RunError
from jaxbench.readings.dependencies import Operation, find_operations, steering_axes
from jaxbench.readings.ranks import Ranks
from jaxbench.report.chakra_groups import CommunicatorGroups
from jaxbench.report.chakra_schema import ENUMS, schema, schema_faults

VERSION = "0.0.4"  # of the trace format

NODE_TYPES = {"compute": "COMP_NODE", "send": "COMM_SEND_NODE", "recv": "COMM_RECV_NODE"}

_OWN_BYTES = 64  # of a message at most: what differs between ranks, and the length


@dataclass(frozen=True)
class Written:
    """What was written: the first trace of `files` traces, `nodes` operations in `nbytes`."""

    first: Path
    groups: Path
    files: int
    nodes: int
    nbytes: int


@dataclass(frozen=True)
class Message:
    """A serialized node without what differs between ranks that do the same: group and peer."""

    common: bytes
    operation: Operation


def chakra_faults(folder: str | Path) -> list[str]:
    """Return why no traces can be written to `folder`, or nothing."""
    folder, faults = Path(folder), schema_faults()
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir():
        faults.append(f"--chakra is '{folder}', but '{nearest}' is not a folder")
    return faults


def write_chakra(
    folder: str | Path,
    name: str,
    closed: ClosedJaxpr,
    ranks: Ranks,
    chosen: Sequence[int] | None = None,
) -> Written:
    """Write the traces of the program `name` for the `chosen` ranks (all).

    Replaces files of the same names, others stay. ASTRA-sim needs the traces of all ranks.
    InputError where they can't be written at all, RunError where writing fails.
    """
    if faults := chakra_faults(folder):
        raise InputError(faults)
    folder, stem = Path(folder), re.sub(r"[^\w.-]", "_", name)
    members = np.arange(ranks.count) if chosen is None else np.asarray(chosen)
    groups = CommunicatorGroups(closed, ranks)
    kinds = _same_programs(closed, ranks, members)
    programs = [_messages(closed, ranks, int(same[0])) for same in kinds]
    sizes = [sum(len(m.common) + _OWN_BYTES for m in messages) for messages in programs]
    needed = sum(size * len(same) for size, same in zip(sizes, kinds, strict=True))
    first = folder / f"{stem}.{int(members[0])}.et"
    table = folder / f"{stem}.comm_groups.json"
    written = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if needed > free:
            raise InputError(
                f"--chakra: the traces of {len(members)} ranks take about {needed} bytes, but "
                f"'{folder}' has {free}; use fewer --devices or another folder"
            )
        for same, messages in zip(kinds, programs, strict=True):
            for rank in same.tolist():
                data = _trace(rank, messages, groups, _metadata(name, ranks, rank))
                (folder / f"{stem}.{rank}.et").write_bytes(data)
                written += len(data)
        table.write_text(groups.to_json(members), encoding="utf-8")
    except OSError as error:
        raise RunError(f"can't write traces to '{folder}': {error.strerror or error}") from error
    nodes = sum(len(same) * len(m) for same, m in zip(kinds, programs, strict=True))
    return Written(first, table, len(members), nodes, written)


def _same_programs(closed: ClosedJaxpr, ranks: Ranks, members: np.ndarray) -> list[np.ndarray]:
    """Return `members` in classes that execute the same operations."""
    columns = [ranks.coordinate(axis)[members] for axis in steering_axes(closed)]
    if not columns:
        return [members]
    _, which = np.unique(np.stack(columns), axis=1, return_inverse=True)
    which = which.reshape(-1)
    return [members[which == number] for number in range(int(which.max()) + 1)]


def _messages(closed: ClosedJaxpr, ranks: Ranks, rank: int) -> list[Message]:
    """Return the nodes of a rank. Times are whole microseconds: rounded so that sums stay right."""
    Node = schema().Node
    involved = [axis for axis in reversed(ranks.sizes) if ranks.sizes[axis] > 1]
    messages, passed_s = [], 0.0
    for number, operation in enumerate(find_operations(closed, ranks, rank), start=1):
        begin_us, passed_s = round(passed_s * 1e6), passed_s + operation.seconds
        node = Node(
            id=number,
            name=_name(operation),
            type=ENUMS["NodeType"][NODE_TYPES.get(operation.kind, "COMM_COLL_NODE")],
            data_deps=[before + 1 for before in operation.after],
            duration_micros=round(passed_s * 1e6) - begin_us,
        )
        node.attr.add(name="is_cpu_op", bool_val=False)
        if operation.kind in ("send", "recv"):
            node.attr.add(name="comm_size", int64_val=operation.nbytes)
            node.attr.add(name="comm_tag", int32_val=operation.tag)
        elif operation.kind != "compute":
            kind = ENUMS["CollectiveCommType"][operation.kind.upper()]
            node.attr.add(name="comm_type", int64_val=kind)
            node.attr.add(name="comm_size", int64_val=_put_in(operation, ranks))
            dimensions = node.attr.add(name="involved_dim").bool_list.values
            dimensions.extend(axis in operation.axes for axis in involved)
        messages.append(Message(node.SerializeToString(deterministic=True), operation))
    return messages


def _name(operation: Operation) -> str:
    return operation.label if operation.kind == "compute" else f"{operation.kind} {operation.label}"


def _put_in(operation: Operation, ranks: Ranks) -> int:
    """Return the bytes that a rank puts into a collective, which is what ASTRA-sim's sizes are."""
    members = ranks.groups(operation.axes).shape[1]
    return operation.nbytes // members if operation.kind == "all_gather" else operation.nbytes


def _trace(
    rank: int, messages: list[Message], groups: CommunicatorGroups, metadata: bytes
) -> bytes:
    """Return the whole file of a rank."""
    parts = [_length(len(metadata)), metadata]
    for message in messages:
        own = _own(message.operation, rank, groups)
        # Two serialized messages in a row are one with the fields of both.
        parts += (_length(len(message.common) + len(own)), message.common, own)
    return b"".join(parts)


def _own(operation: Operation, rank: int, groups: CommunicatorGroups) -> bytes:
    """Return the fields of a node that differ between ranks of the same program."""
    if operation.kind == "compute":
        return b""
    if operation.kind in ("send", "recv"):
        peer = rank + operation.offset
        return _peers(rank, peer) if operation.kind == "send" else _peers(peer, rank)
    return _group(groups.number(operation.axes, rank))


@cache
def _peers(source: int, target: int) -> bytes:
    node = schema().Node()
    node.attr.add(name="comm_src", int32_val=source)
    node.attr.add(name="comm_dst", int32_val=target)
    return node.SerializeToString(deterministic=True)


@cache
def _group(number: int) -> bytes:
    node = schema().Node()
    node.attr.add(name="pg_name", string_val=str(number))
    return node.SerializeToString(deterministic=True)


def _metadata(name: str, ranks: Ranks, rank: int) -> bytes:
    metadata = schema().GlobalMetadata(version=VERSION)
    facts = {
        "producer": f"jaxbench {jaxbench.__version__}",
        "program": name,
        "mesh": mesh_text(ranks.axes),
        "rank": str(rank),
    }
    for fact, text in facts.items():
        metadata.attr.add(name=fact, string_val=text)
    return metadata.SerializeToString(deterministic=True)


@cache
def _length(size: int) -> bytes:
    """Return `size` as a varint: seven bits a byte, lowest first, the high bit on all but one."""
    encoded = []
    while size > 127:
        encoded.append(size & 127 | 128)
        size >>= 7
    return bytes([*encoded, size])
