"""Process 0's address: one that others reach, or the reason before JAX would abort."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jaxbench.errors import InputError
from jaxbench.launch.addresses import (
    ANY,
    addresses_of_first,
    is_loopback,
    own_name_fault,
    resolve,
)
from jaxbench.launch.world import World

KNOWN = {
    "n1": ["10.0.0.1"],
    "n2": ["10.0.0.2", "fd00::2"],
    "debian": ["127.0.1.1"],
    "virtual1": ["127.0.0.1"],
    "virtual2": ["127.0.0.2"],
    "10.0.0.9": ["10.0.0.9"],
    "127.0.0.5": ["127.0.0.5"],
    "localhost": ["127.0.0.1", "::1"],
}


def find(name: str) -> list[str]:
    return KNOWN.get(name, [])


def by_slurm(address: str | None) -> Callable[[str], str | None]:
    return lambda node: address


def world(
    *hosts: str, nodes: tuple[str, ...] = ("n1", "n2"), index: int = 1, local: bool = False
) -> World:
    return World("srun", index, 4, "", hosts, (1,), "here", nodes, local)


def look(given: World, address: str | None = None) -> tuple[str, ...]:
    return addresses_of_first(given, find, by_slurm(address))


def test_the_address_of_the_name() -> None:
    assert look(world("n1")) == ("10.0.0.1",)
    assert look(world("n2")) == ("10.0.0.2", "fd00::2")
    assert look(world("n1", "n2")) == ("10.0.0.1", "10.0.0.2", "fd00::2")


def test_one_host_needs_no_name() -> None:
    assert look(world("nowhere", local=True)) == ("127.0.0.1",)
    assert look(world("127.0.0.5", local=True)) == ("127.0.0.5",)
    assert look(world("localhost", local=True)) == ("127.0.0.1", "::1")


def test_slurm_s_own_address_of_a_name_that_is_not_known() -> None:
    assert look(world("nowhere"), "10.0.0.9") == ("10.0.0.9",)


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (None, "scontrol shows no NodeAddr of it"),
        ("neither", r"neither does the NodeAddr that Slurm has for it \(neither\)"),
    ],
)
def test_a_name_without_address_is_told(address: str | None, text: str) -> None:
    with pytest.raises(InputError, match=f"on 'nowhere', a name that has no address .*{text}"):
        look(world("nowhere"), address)


def test_loopback_is_refused_where_other_hosts_are_to_reach_it() -> None:
    for host in ("debian", "localhost", "127.0.0.5"):
        with pytest.raises(InputError, match="a loopback address, which other hosts can't reach"):
            look(world(host))
    with pytest.raises(InputError, match="loopback"):
        look(world("localhost", index=0))


def test_process_0_listens_everywhere_where_its_own_name_is_loopback() -> None:
    assert look(world("debian", index=0)) == (ANY,)


def test_virtual_nodes_of_one_machine_may_be_loopback() -> None:
    assert look(world("virtual1", nodes=("virtual1", "virtual2"))) == ("127.0.0.1",)
    assert look(world("v3", nodes=("v3", "v4")), "127.0.0.5") == ("127.0.0.5",)
    with pytest.raises(InputError, match="loopback"):
        look(world("virtual1", nodes=("virtual1", "n2")))


def test_gloo_listens_at_the_host_s_own_name() -> None:
    for name, text in {"debian": "is 127.0.1.1, which other", "nowhere": "has no address"}.items():
        fault = own_name_fault(world("n1"), "10.0.0.1", find, name)
        assert fault and f"this host's name '{name}' {text}" in fault
        assert own_name_fault(world("n1", local=True), "10.0.0.1", find, name) is None
        assert own_name_fault(world("virtual1"), "127.0.0.1", find, name) is None
    assert own_name_fault(world("n1"), "10.0.0.1", find, "n2") is None


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("localhost.localdomain", True),
        ("10.0.0.1", False),
        ("n127", False),
        ("localhosted", False),
    ],
)
def test_what_is_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_resolving() -> None:
    assert resolve("127.0.0.1") == ["127.0.0.1"]
    assert resolve("no-such-host.invalid") == resolve("") == []
