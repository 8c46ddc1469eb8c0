"""The ``simkv`` command: its verbs, and the one place that turns errors into exit codes.

====  ==========================================================================
code  meaning
====  ==========================================================================
0     done
2     the input or the machine is at fault: one sentence on stderr
70    a law of simkv is broken: a bug
130   interrupted (Ctrl-C or SIGTERM)
====  ==========================================================================

Results go to stdout or to files, everything else to stderr. The verbs import what they need when
they are called, so that help comes at once.
"""

import errno
import os
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from types import FrameType
from typing import NoReturn

from cyclopts import App, CycloptsError

from simkv.cli.catalog import MODELS_EXAMPLES, PROFILES_EXAMPLES, models, profiles
from simkv.cli.explain import EXPLAIN_EXAMPLES, explain
from simkv.cli.output import examples
from simkv.cli.replay import REPLAY_EXAMPLES, replay
from simkv.cli.run import RUN_EXAMPLES, run
from simkv.cli.sweep import PICK_EXAMPLES, SWEEP_EXAMPLES, pick, sweep
from simkv.cli.trace import trace
from simkv.errors import InputError, InvariantError

OK, BAD_INPUT, BUG, INTERRUPTED = 0, 2, 70, 130

_LEAST_COLUMNS = 20

_ADVICE = {
    errno.ENOSPC: "the disk is full; free some space and run the same command again",
    errno.EDQUOT: "the disk quota is used up; free some space and run the same command again",
    errno.ENOENT: "there is no such file or folder; check the path",
    errno.EACCES: "permission denied; check who owns it, or choose another place",
    errno.EPERM: "permission denied; check who owns it, or choose another place",
    errno.EROFS: "the file system is read-only; choose another place",
    errno.EISDIR: "this is a folder; name a file",
    errno.ENOTDIR: "this is a file; name a folder",
}


def _version() -> str:
    try:
        return version("simkv")
    except PackageNotFoundError:
        return "unknown (not installed)"


app = App(
    name="simkv",
    help="Which KV-cache layout, block size and sharing policy suits your traffic, by simulation.",
    help_epilogue=examples(
        "simkv run",
        "simkv sweep experiments/block_size/sweep.toml --out results/block_size",
        "simkv trace describe sample:sharegpt-agents",
    ),
    help_format="plaintext",
    version=_version,
    suppress_keyboard_interrupt=False,
)
app.command(run, help_epilogue=RUN_EXAMPLES)
app.command(explain, help_epilogue=EXPLAIN_EXAMPLES)
app.command(sweep, help_epilogue=SWEEP_EXAMPLES)
app.command(pick, help_epilogue=PICK_EXAMPLES)
app.command(trace)
app.command(replay, help_epilogue=REPLAY_EXAMPLES)
app.command(models, help_epilogue=MODELS_EXAMPLES)
app.command(profiles, help_epilogue=PROFILES_EXAMPLES)


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    signal.signal(signal.SIGTERM, _interrupt)
    _prepare_streams()
    code = call(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError:
        # Said already; send the rest nowhere, or the interpreter complains when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def call(tokens: Sequence[str]) -> int:
    """Run one command line and return its exit code; what went wrong is said on stderr."""
    try:
        app(tokens, exit_on_error=False, print_error=False, result_action="return_none")
        # What is still buffered may not fit on the disk either.
        sys.stdout.flush()
    except CycloptsError as error:
        verb = " ".join(("simkv", *(error.command_chain or ())))
        return _fail(BAD_INPUT, f"{_one_line(str(error))} (see {verb} --help)")
    except InputError as error:
        return _fail(BAD_INPUT, str(error))
    except InvariantError as error:
        return _fail(
            BUG,
            f"{error}; this is a bug in simkv: please report it with the command, the version "
            f"({_version()}) and what simkv run --print-config shows",
        )
    except KeyboardInterrupt as interrupt:
        return _fail(INTERRUPTED, str(interrupt) or "nothing was written")
    except BrokenPipeError:
        return OK  # whoever read the output has enough: `simkv ... | head` is no mistake
    except (UnicodeEncodeError, UnicodeDecodeError) as error:
        return _fail(BAD_INPUT, f"a path or a text is no UTF-8 ({error.reason}); rename it")
    except MemoryError:
        return _fail(BAD_INPUT, "out of memory; take a smaller trace or fewer workers")
    except OSError as error:
        return _fail(BAD_INPUT, _sentence(error))
    return OK


def _prepare_streams() -> None:
    """Make output safe: closed streams, terminals without Unicode, terminals without width."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller: `simkv ... >&-`
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
        else:
            stream.reconfigure(errors="backslashreplace")
    # Help that is laid out for no columns at all would never end.
    if os.environ.get("COLUMNS", "").isdecimal():
        os.environ["COLUMNS"] = str(max(_LEAST_COLUMNS, int(os.environ["COLUMNS"])))


def _fail(code: int, sentence: str) -> int:
    what = "interrupted" if code == INTERRUPTED else "error"
    print(f"simkv: {what}: {sentence}", file=sys.stderr)
    return code


def _sentence(error: OSError) -> str:
    reason = _ADVICE.get(error.errno or 0, error.strerror or str(error))
    return f"{error.filename}: {reason}" if error.filename else reason


def _one_line(text: str) -> str:
    return " ".join(text.split()).removesuffix(".")


def _interrupt(signum: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
