"""``python -m simkv`` and the ``simkv`` command."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; Ctrl-C is one sentence also while the modules are loaded."""
    try:
        from simkv.cli.app import main as run

        run()
    except KeyboardInterrupt:
        print("simkv: interrupted: nothing was written", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
