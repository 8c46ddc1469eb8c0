"""All trace formats, in the order in which a file is asked whether it is one."""

from simkv.errors import InputError
from simkv.workload.readers.aibrix import AIBRIX
from simkv.workload.readers.azure import AZURE
from simkv.workload.readers.burstgpt import BURSTGPT
from simkv.workload.readers.chat import CHAT
from simkv.workload.readers.format import Format
from simkv.workload.readers.llmservingsim import LLMSERVINGSIM
from simkv.workload.readers.lmcache import LMCACHE
from simkv.workload.readers.mooncake import MOONCAKE
from simkv.workload.readers.plain import PLAIN
from simkv.workload.readers.qwen_bailian import QWEN_BAILIAN
from simkv.workload.readers.servegen_clients import SERVEGEN_CLIENTS
from simkv.workload.readers.servegen_offline import SERVEGEN_OFFLINE
from simkv.workload.readers.vidur import VIDUR
from simkv.workload.readers.weka_agentic import WEKA_AGENTIC
from simkv.workload.store import CANONICAL

FORMATS: tuple[Format, ...] = (
    CANONICAL,
    SERVEGEN_CLIENTS,
    AZURE,
    VIDUR,
    BURSTGPT,
    PLAIN,
    MOONCAKE,
    WEKA_AGENTIC,
    QWEN_BAILIAN,
    SERVEGEN_OFFLINE,
    LLMSERVINGSIM,
    LMCACHE,
    AIBRIX,
    CHAT,
)


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
