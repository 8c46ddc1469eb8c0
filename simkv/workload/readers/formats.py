"""All trace formats, in the order in which a file is asked whether it is one."""

from simkv.errors import InputError
from simkv.workload.readers.format import Format

FORMATS: tuple[Format, ...] = ()


def find_format(name: str) -> Format:
    """Return the format of this name.

    Raises
    ------
    InputError
        Naming the formats there are.
    """
    for known in FORMATS:
        if known.name == name:
            return known
    choices = ", ".join(known.name for known in FORMATS)
    raise InputError(f"unknown trace format {name!r}; expected auto or one of: {choices}")
