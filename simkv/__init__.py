"""simkv: which KV-cache layout, block size and sharing policy suits your traffic.

The few names below are the library; each is imported when it is first used, so that
``import simkv`` costs nothing and loads none of the third-party packages.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simkv.config.load import load_config
    from simkv.config.run import RunConfig
    from simkv.sim.simulate import simulate
    from simkv.workload.load import read_trace

__all__ = ["RunConfig", "load_config", "read_trace", "simulate"]

_HOME = {
    "RunConfig": "simkv.config.run",
    "load_config": "simkv.config.load",
    "read_trace": "simkv.workload.load",
    "simulate": "simkv.sim.simulate",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its home."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__.copy()
