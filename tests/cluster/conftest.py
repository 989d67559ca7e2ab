"""Tests in this folder have the shared clusters, and run one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.fixtures import loopback, loopback_session, namespace_session, namespaces

__all__ = ["loopback", "loopback_session", "namespace_session", "namespaces"]

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # xdist looks for groups when it is its turn
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker of xdist has all of them, so that each cluster is booted once.

    They are slow, but for those of jaxbench itself, which say so one by one.
    """
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("cluster"))
            if item.path.name != "test_jaxbench.py":
                item.add_marker(pytest.mark.slow)
