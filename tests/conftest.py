"""What every test can ask for: the published data sets, and Hypothesis's two profiles."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The same examples every time and on every machine: a red run can be repeated.
settings.register_profile("default", derandomize=True, deadline=None, max_examples=50)
settings.register_profile(
    "long",
    derandomize=False,
    deadline=None,
    max_examples=2000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("default")


@pytest.fixture(scope="session")
def shared() -> Callable[..., Path]:
    """Find a file of the published data sets, under the folder that SIMKV_DATA names.

    Without the variable the test is skipped. With it, a file that is not there skips too, but
    fails in continuous integration, where nothing may go untested unseen.
    """

    def find(*parts: str) -> Path:
        root = os.environ.get("SIMKV_DATA")
        if not root:
            pytest.skip("SIMKV_DATA is not set: it names the folder that holds data/ and vllm-v1/")
        path = Path(root).joinpath(*parts)
        if not path.exists():
            message = f"{'/'.join(parts)} is not in the folder that SIMKV_DATA names"
            if os.environ.get("CI") == "true":
                pytest.fail(message)
            pytest.skip(message)
        return path

    return find
