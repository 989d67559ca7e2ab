"""How processes that have met are arranged: order, cores, and who takes which device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxbench.launch.arrangement import Member, arrange, near_order, this_member
from jaxbench.launch.devices import Visible, own_share, visible_devices
from jaxbench.launch.world import World
from jaxbench.measure.processes import Place


def place(text: str) -> Place:
    """Return the place of 'g0/s1/n3'."""
    *switches, host = text.split("/")
    return Place(host, tuple(switches), switches[0] if switches else None)


def member(text: str, machine: str = "", cores: tuple[int, ...] = (0, 1), **seen: object) -> Member:
    """Return a process there, on a machine of its own unless said."""
    where = place(text)
    machine = machine or where.host
    return Member(where, 7, machine, machine, cores, Visible(**seen))  # type: ignore[arg-type]


def test_processes_of_a_switch_are_neighbours() -> None:
    cyclic = ["g0/s0/n1", "g1/s2/n5", "g0/s1/n3", "g0/s0/n2"] * 2
    order = near_order({k: place(text) for k, text in enumerate(cyclic)})
    assert [cyclic[k] for k in order] == [
        *["g0/s0/n1"] * 2,
        *["g0/s0/n2"] * 2,
        *["g0/s1/n3"] * 2,
        *["g1/s2/n5"] * 2,
    ]
    assert order == [0, 4, 3, 7, 2, 6, 1, 5]


PLACES = st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)).map(
    lambda t: place(f"g{t[0]}/g{t[0]}s{t[1]}/n{t[0]}{t[1]}{t[2]}")
)


@given(st.lists(PLACES, min_size=1, max_size=30))
def test_the_order_is_one_of_all_with_process_0_first_and_nothing_torn_apart(
    places: list[Place],
) -> None:
    order = near_order(dict(enumerate(places)))
    assert sorted(order) == list(range(len(places)))
    assert order[0] == 0
    for depth in range(3):
        names = [(*places[k].switches, places[k].host)[: depth + 1] for k in order]
        runs = [name for k, name in enumerate(names) if k == 0 or names[k - 1] != name]
        assert len(runs) == len(set(runs))


@given(st.integers(1, 4), st.integers(1, 4))
def test_an_order_that_is_near_already_is_kept(hosts: int, each: int) -> None:
    places = [place(f"s{k // each}/n{k // each}") for k in range(hosts * each)]
    assert near_order(dict(enumerate(places))) == list(range(hosts * each))


def test_what_each_is_told() -> None:
    members = {
        0: member("s0/n1", "m1", (0, 1)),
        1: member("s0/n1", "m1", (2, 3)),
        2: member("s0/n2", "m1", (0, 1, 2, 3, 4)),  # another node of the same machine
        3: member("s1/n3", "m2", (0,)),
    }
    told = arrange(members)
    assert [told[k]["host_cores"] for k in range(4)] == [5, 5, 5, 1]
    assert [told[k]["host_processes"] for k in range(4)] == [3, 3, 3, 1]
    assert {told[k]["deputy"] for k in range(4)} == {2}  # of another host than process 0's
    assert arrange({k: members[k] for k in (0, 1)})[1]["deputy"] == 1
    assert [p["host"] for p in told[0]["places"]] == ["n1", "n1", "n2", "n3"]
    assert [p["host"] for p in told[3]["places"]] == ["n3"]


def test_many_processes_of_one_machine_are_arranged_in_one_go() -> None:
    """A thousand may come: each one's processors are looked at once, not once for each other."""
    looked = 0

    class Counted(tuple[int, ...]):
        def __iter__(self) -> Iterator[int]:
            nonlocal looked
            looked += 1
            return super().__iter__()

    members = {k: member("s0/n0", cores=Counted([k])) for k in range(64)}
    told = arrange(members)
    assert {t["host_cores"] for t in told.values()} == {64}
    assert looked == 64


def test_devices_are_shared_out_on_each_host_by_itself() -> None:
    seen = {"names": "0,1,2,3", "count": 4}
    members = {k: member(f"s/n{k % 2}", **seen) for k in range(4)}  # cyclic: 0, 2 on n0
    told = arrange(members)
    assert [told[k]["local_device_ids"] for k in range(4)] == [[0, 1], [0, 1], [2, 3], [2, 3]]


@pytest.mark.parametrize(
    ("seen", "shares"),
    [
        ([("0,1,2,3", False)], [None]),  # one process per node: all
        ([("0,1,2,3", False)] * 4, [[0], [1], [2], [3]]),
        ([("0,1,2,3", False)] * 2, [[0, 1], [2, 3]]),
        ([("4,5", False)] * 2, [[0], [1]]),  # ids count what is visible
        ([("0", False), ("1", False)], [None, None]),  # each its own
        ([("0,1", False), ("2,3", False)], [None, None]),
        ([("0,1", True)] * 2, [None, None]),  # Slurm says that they are its own
        ([("0", False)] * 4, [None] * 4),  # bound by cgroups: all are number 0 to their task
        ([(None, False)] * 3, [None] * 3),  # no GPUs
    ],
)
def test_every_device_is_used_once(
    seen: list[tuple[str | None, bool]], shares: list[list[int] | None]
) -> None:
    visible = [Visible(n, len(n.split(",")) if n else None, own) for n, own in seen]
    assert [own_share(k, visible) for k in range(len(seen))] == [(s, None) for s in shares]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["0,1,2", "0,1,2"], "2 processes on one host can't share its 3 devices evenly"),
        (["0,1", "1,2"], "see overlapping devices (0,1 and 1,2)"),
    ],
)
def test_devices_that_can_t_be_shared_out(names: list[str], text: str) -> None:
    share, fault = own_share(0, [Visible(n, len(n.split(","))) for n in names])
    assert share is None and fault and text in fault


def test_what_is_visible(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert visible_devices({}, tmp_path, tmp_path) == Visible(None, 2)
    assert visible_devices({}, tmp_path / "none", tmp_path) == Visible(None, None)
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "1,3,"}, tmp_path) == Visible("1,3,", 2)
    assert visible_devices({"ROCR_VISIBLE_DEVICES": "0"}, tmp_path).count == 1
    for name, text in {
        "SLURM_GPUS_PER_TASK": "1",
        "SLURM_TRES_PER_TASK": "cpu:4,gres/gpu:1",
        "SLURM_GPU_BIND": "per_task:1",
    }.items():
        assert visible_devices({name: text}, tmp_path).own is True


def test_it_survives_the_wire() -> None:
    this = this_member(World("srun", host="n3", switches=("core", "s1"), group="core"), os.environ)
    assert Member.from_message(this.to_message()) == this
    assert this.pid == os.getpid() and this.place == Place("n3", ("core", "s1"), "core")
