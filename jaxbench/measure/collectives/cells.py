"""A cell of the collectives benchmark: one kind, mesh axis, dtype and size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jaxbench.dtypes import find_dtype
from jaxbench.measure.collectives.kinds import KINDS, bus_factor
from jaxbench.workload import tpu_tiles


@dataclass(frozen=True)
class Cell:
    """One collective over every group of `group_size` ranks along `axis`, all groups at once.

    `elements` are those that the size counts (see `kinds.KINDS`): of the result for an all-gather,
    of a rank's buffer or message for the others. `asked_bytes` are the sizes that were asked for
    and became this one, rounded up to whole elements and equal parts.
    """

    kind: str
    axis: str
    group_size: int
    dtype: str
    elements: int
    asked_bytes: tuple[int, ...] = ()

    @property
    def bytes(self) -> int:
        """Logical bytes: the size column of nccl-tests."""
        return self.elements * find_dtype(self.dtype)

    @property
    def count(self) -> int:
        """The count column of nccl-tests: elements of a part where there are parts."""
        return self.elements // self.group_size if KINDS[self.kind].parts else self.elements

    @property
    def operand_elements(self) -> int:
        """Elements of the buffer that a rank starts with."""
        return self.count if self.kind == "all_gather" else self.elements

    @property
    def bus_factor(self) -> float:
        """Bus bandwidth over algorithmic bandwidth."""
        return bus_factor(self.kind, self.group_size)

    @property
    def series(self) -> tuple[str, str, int, str]:
        """What a fit over sizes is made for: kind, axis, group size, dtype."""
        return self.kind, self.axis, self.group_size, self.dtype

    def describe(self) -> str:
        """Return the cell in words."""
        who = f"{self.axis}={self.group_size}"
        return f"{self.kind} of {self.bytes:,} B of {self.dtype} over {who}"


def make_cell(
    kind: str, axis: str, group_size: int, dtype: str, nbytes: int, padding: str = "exact"
) -> Cell:
    """Return the cell of at least `nbytes`: whole elements, and equal parts where there are parts.

    `padding` 'tpu' makes the parts of all_gather and reduce_scatter fill the tiles of a TPU,
    without which its compiler makes an all-reduce of them.
    """
    elements = max(1, -(-nbytes // find_dtype(dtype)))
    if KINDS[kind].parts:
        part = -(-elements // group_size)
        if padding == "tpu" and kind in ("all_gather", "reduce_scatter"):
            part = tpu_tiles(part)
        elements = part * group_size
    return Cell(kind, axis, group_size, dtype, elements, (nbytes,))


def make_cells(
    kinds: Iterable[str],
    axes: Mapping[str, int],
    dtypes: Iterable[str],
    sizes: Sequence[int],
    padding: str = "exact",
) -> list[Cell]:
    """Return the cells of a whole grid; sizes that round to the same one make one cell."""
    dtypes = tuple(dtypes)
    cells: dict[Cell, Cell] = {}
    for kind in kinds:
        for axis, group_size in axes.items():
            for dtype in dtypes:
                for nbytes in sizes:
                    cell = make_cell(kind, axis, group_size, dtype, nbytes, padding)
                    key = replace(cell, asked_bytes=())
                    before = cells[key].asked_bytes if key in cells else ()
                    cells[key] = replace(cell, asked_bytes=(*before, nbytes))
    return list(cells.values())
