"""Every error that simkv raises on purpose.

::

    SimkvError
    ├── InputError        the user's input: one clear sentence, exit code 2
    │   ├── ConfigError   a key or value of a configuration, with its dotted path
    │   ├── TraceError    a trace file, with file and line
    │   └── ProfileError  a kernel profile, a model or a device description
    └── InvariantError    a law of docs/invariants.md is broken: a bug in simkv
"""

from pathlib import Path


class SimkvError(Exception):
    """Root of the tree; never raised itself."""


class InputError(SimkvError):
    """Something that the user gave cannot be used; the message says what to do."""


class ConfigError(InputError):
    """A key or a value of a configuration is wrong; ``path`` is its dotted path."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path


class TraceError(InputError):
    """A trace cannot be read; the message starts with the file and, where known, the line."""

    def __init__(self, message: str, *, file: Path | str = "", line: int | None = None) -> None:
        place = f"{file}:{line}: " if line is not None else f"{file}: " if file else ""
        super().__init__(place + message)
        self.file = file
        self.line = line


class ProfileError(InputError):
    """A profile, a model or a device description cannot be used."""


class InvariantError(SimkvError):
    """A law is broken. This is a bug in simkv, never the user's fault."""
