"""Compare simulated with measured servers: write tables, and renew the document that shows them.

``python scripts/fidelity.py --data DIR [--out DIR] [--document FILE]`` where DIR is the folder that
SIMKV_DATA names (it holds data/ and vllm-v1/).
"""

import argparse
from pathlib import Path

from simkv.fidelity import markdown
from simkv.fidelity.results import compute, write


def main() -> None:
    """Write everything and say where it is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of data/ and vllm-v1/")
    parser.add_argument("--out", type=Path, default=Path("results/fidelity"))
    parser.add_argument("--document", type=Path, help="document whose generated block is renewed")
    options = parser.parse_args()
    for part in ("data", "vllm-v1"):
        if not options.data.joinpath(part).is_dir():
            raise SystemExit(f"{options.data} holds no {part}/; name the folder of SIMKV_DATA")
    results = compute(options.data)
    files = write(results, options.out)
    text = markdown.render(results)
    files.append(options.out / "tables.md")
    files[-1].write_text(text, encoding="utf-8")
    if options.document is not None:
        markdown.rewrite(options.document, text)
        files.append(options.document)
    for file in files:
        print(file)


if __name__ == "__main__":
    main()
