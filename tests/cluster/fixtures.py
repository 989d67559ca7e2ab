"""The clusters that tests share: booted once a session, free of jobs again after each test.

Without Slurm the tests are skipped, and say what to install; where CI is set, that is a failure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster, missing
from tests.cluster.layout import Layout


def require(namespaces: bool = False) -> None:
    """Skip the test if there can't be a cluster here; fail it in CI."""
    if reason := missing(namespaces):
        if os.environ.get("CI"):
            pytest.fail(f"in CI this must be there: {reason}")
        pytest.skip(reason)


@pytest.fixture(scope="session")
def loopback_session() -> Iterator[Cluster]:
    """A cluster of eight nodes that are this machine's loopback addresses."""
    require()
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def namespace_session() -> Iterator[Cluster]:
    """A cluster of eight nodes with networks of their own, all links as fast as they can be."""
    require(namespaces=True)
    with Cluster(Layout(namespaces=True)) as cluster:
        yield cluster


@pytest.fixture
def loopback(loopback_session: Cluster) -> Iterator[Cluster]:
    """The loopback cluster, without jobs."""
    yield loopback_session
    loopback_session.cancel()


@pytest.fixture
def namespaces(namespace_session: Cluster) -> Iterator[Cluster]:
    """The cluster with networks, without jobs."""
    yield namespace_session
    namespace_session.cancel()
