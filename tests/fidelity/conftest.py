"""Every comparison with measured runs, computed once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from simkv.fidelity.results import Results, compute


@pytest.fixture(scope="session")
def results(shared: Callable[..., Path]) -> Results:
    shared("data", "e2e")
    return compute(shared("vllm-v1").parent)
