"""``python -m simkv`` and the ``simkv`` command."""

from simkv.cli.app import main

if __name__ == "__main__":
    main()
