"""Make the shipped cost profiles from published kernel tables; a re-run gives the same bytes.

``python scripts/make_profiles.py --data DIR`` where DIR holds ``kernels/`` (the folder ``data``
under the one that SIMKV_DATA names).
"""

import argparse
from pathlib import Path

from simkv.assets import asset_folder
from simkv.cost.profile import Profile, save
from simkv.fit import aiconfigurator, llmservingsim


def make_all(kernels: Path) -> list[Profile]:
    """Return every shipped profile, made from the folder of kernel tables."""
    return [
        aiconfigurator.make(aiconfigurator.H200, kernels),
        aiconfigurator.make(aiconfigurator.A100, kernels),
        llmservingsim.make(llmservingsim.RTX4090, kernels),
        llmservingsim.make(llmservingsim.RTXPRO6000, kernels),
    ]


def main() -> None:
    """Write the profiles and print how well each predicts what was left out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder that holds kernels/")
    parser.add_argument("--out", type=Path, default=asset_folder("profiles"))
    options = parser.parse_args()
    for profile in make_all(options.data / "kernels"):
        path = options.out / f"{profile.name}.json"
        save(profile, path)
        print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB")
        for kernel, found in profile.heldout.items():
            parts = (f"{s} {100 * m:.1f}/{100 * p:.1f}" for s, (m, p) in found.items())
            print(f"  {kernel}: median/p90 % of {', '.join(parts)}")


if __name__ == "__main__":
    main()
