"""Who communicates with whom: the replica groups and pairs of a collective, written out.

XLA prints groups in four ways, all of them lists of positions in the mesh (row-major over its
axes, not device ids):

    {{0,1},{2,3}}           the groups themselves
    {}                      all devices in one group
    [4,2]<=[2,4]T(1,0)      4 groups of 2: 0..7 shaped (2,4), transposed, read row by row
    mesh['a'=2,'b'=4] {'b'} from jax 0.11 on: one group along axis b for each value of the others;
                            axes in the order given, the last one fastest. An axis may be split,
                            'a':(2)4 = the part of size 4 that has 2 outside it, and a mesh may
                            name another device order: mesh['a'=4], device_ids=(0,2,1,3) {'a'}
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence

from jaxbench.errors import RunError

Groups = tuple[tuple[int, ...], ...]

_LISTED = re.compile(r"replica_groups=\{((?:\{[\d,]*\},?)*)\}")
_IOTA = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(
    r"replica_groups=@?mesh\[([^\]]*)\](?:, device_ids=\(\[?([\d,]*)\]?\))? \{([^}]*)\}"
)
_MESH_AXIS = re.compile(r"'?([^',=]+)'?=(\d+)")
_GROUP_AXIS = re.compile(r"'?([^',:]+)'?(?::\((\d+)\)(\d+))?")
_PAIRS = re.compile(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}")


def replica_groups(attributes: str, num_devices: int) -> Groups:
    """Return the groups that `attributes` name; all devices in one group where there are none."""
    if listed := _LISTED.search(attributes):
        groups = tuple(_integers(group) for group in re.findall(r"\{([\d,]*)\}", listed[1]))
    elif iota := _IOTA.search(attributes):
        groups = _iota_groups(*(_integers(part or "") for part in iota.groups()))
    elif mesh := _MESH.search(attributes):
        groups = _mesh_groups(mesh[1], mesh[2], mesh[3])
    elif "replica_groups=" in attributes:
        form = attributes[attributes.index("replica_groups=") :][:80]
        raise RunError(f"the compiled program writes its groups in an unknown form: {form}")
    else:
        groups = ()
    groups = groups or (tuple(range(num_devices)),)
    _check_devices(itertools.chain(*groups), num_devices)
    return groups


def source_target_pairs(attributes: str, num_devices: int) -> tuple[tuple[int, int], ...]:
    """Return the (source, destination) pairs of a permute, in the order given."""
    found = _PAIRS.search(attributes)
    if not found:
        return ()
    flat = _integers(re.sub(r"[{}]", "", found[1]))
    _check_devices(flat, num_devices)
    return tuple(zip(flat[::2], flat[1::2], strict=True))


def _iota_groups(dims: Sequence[int], reshape: Sequence[int], permutation: Sequence[int]) -> Groups:
    """Read 0..n-1, shaped `reshape` and transposed, as dims[0] groups of dims[1]."""
    flat = _transposed(reshape, permutation or range(len(reshape)))
    size = dims[-1]
    return tuple(tuple(flat[i : i + size]) for i in range(0, len(flat), size))


def _mesh_groups(axes: str, device_ids: str | None, grouped: str) -> Groups:
    """Return one group along the `grouped` axes for each position on the other axes."""
    sizes = {name: int(size) for name, size in _MESH_AXIS.findall(axes)}
    parts = [_part(sizes, *found) for found in _GROUP_AXIS.findall(grouped)]
    dims: list[int] = []
    dim_of: dict[tuple[str, int], int] = {}
    for name, total in sizes.items():
        cuts = {edge for axis, *edges in parts if axis == name for edge in edges}
        for outside, inclusive in itertools.pairwise(sorted(cuts | {1, total})):
            dim_of[name, outside] = len(dims)
            dims.append(inclusive // outside)
    inner = [dim_of[name, low] for name, low, high in parts if high > low]
    outer = [dim for dim in range(len(dims)) if dim not in inner]
    flat = _transposed(dims, outer + inner)
    if device_ids:
        ids = _integers(device_ids)
        flat = [ids[i] for i in flat]
    size = math.prod(dims[dim] for dim in inner)
    return tuple(tuple(flat[i : i + size]) for i in range(0, len(flat), size))


def _part(sizes: dict[str, int], name: str, before: str, size: str) -> tuple[str, int, int]:
    """Return an axis and which part of it is meant, as products of sizes counted from outside.

    'a' of size 8 is all of it, (1, 8); 'a':(2)4 has 2 outside it, and 8 with itself: (2, 8).
    """
    return (name, int(before), int(before) * int(size)) if size else (name, 1, sizes[name])


def _transposed(shape: Sequence[int], order: Sequence[int]) -> list[int]:
    """Return 0..n-1 shaped `shape`, transposed by `order`, read row by row."""
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    ranges = [range(0, shape[d] * strides[d], strides[d]) for d in order]
    return [sum(offsets) for offsets in itertools.product(*ranges)]


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number)


def _check_devices(devices: itertools.chain[int] | Sequence[int], num_devices: int) -> None:
    highest = max(devices, default=0)
    if highest >= num_devices:
        raise RunError(
            f"the compiled program names device {highest}, but the mesh has {num_devices}; "
            "compile and read it with the same mesh"
        )
