"""The groups of tests with a costly set-up: each must be of one worker, or all repeat it."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("groups")
def test_the_workers_know_groups(request: pytest.FixtureRequest) -> None:
    """xdist 3.8 under pytest 9.2 ignored them, and everything else passed, twice as slowly."""
    if getattr(request.config.option, "loadgroup", False):
        assert request.node.nodeid.endswith("@groups")
