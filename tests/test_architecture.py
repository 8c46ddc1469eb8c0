"""The laws of docs/architecture.md that import-linter cannot see."""

import ast
import json
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import simkv

ROOT = Path(__file__).parents[1]
DECISION_CODE = ("cost", "kv", "route", "sched")
MAX_TRACKED_BYTES = 1_000_000


def modules_of(*parts: str) -> list[str]:
    """Name every module below some parts of simkv."""
    return [
        f"simkv.{part}.{info.name}"
        for part in parts
        for info in pkgutil.iter_modules([str(ROOT / "simkv" / part)])
    ]


def foreign_modules_of(names: list[str]) -> set[str]:
    """Top-level packages, neither standard nor numpy nor simkv, that importing ``names`` loads."""
    code = (
        "import importlib, json, sys\n"
        "before = set(sys.modules)\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    return loaded - sys.stdlib_module_names - {"numpy", "simkv"}


def test_decision_code_loads_the_standard_library_and_numpy_only() -> None:
    names = modules_of(*DECISION_CODE)
    assert names
    assert foreign_modules_of(names) == set()


def test_the_config_tree_is_plain_dataclasses() -> None:
    # A server that only executes picks reads them without pydantic.
    assert "pydantic" not in foreign_modules_of(["simkv.config.run"])


def test_import_simkv_alone_loads_nothing() -> None:
    assert foreign_modules_of(["simkv"]) == set()


def test_public_names_are_sorted_visible_and_exist() -> None:
    assert simkv.__all__ == sorted(simkv.__all__) == dir(simkv)
    for name in simkv.__all__:
        assert getattr(simkv, name).__name__ == name


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        _ = simkv.simulat


def test_init_files_are_empty_but_for_the_library_itself() -> None:
    full = [path for path in (ROOT / "simkv").rglob("__init__.py") if path.stat().st_size]
    assert full == [ROOT / "simkv" / "__init__.py"]


def test_no_module_is_a_drawer_for_odds_and_ends() -> None:
    drawers = {"utils", "util", "common", "helpers", "helper", "misc", "base", "types"}
    assert [p for p in (ROOT / "simkv").rglob("*.py") if p.stem in drawers] == []


def test_every_module_says_what_it_owns() -> None:
    silent = [
        path
        for path in (ROOT / "simkv").rglob("*.py")
        if path.name != "__init__.py" and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


def test_experiments_know_only_tables_and_sweeps() -> None:
    for path in (ROOT / "experiments").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            for name in names:
                if name.partition(".")[0] in {"simkv", "gpu"}:
                    assert name.startswith(("simkv.obs", "simkv.sweep")), f"{path}: {name}"


def test_no_tracked_file_is_large() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    large = {str(p): p.stat().st_size for p in paths if p.is_file()}
    assert {p: size for p, size in large.items() if size > MAX_TRACKED_BYTES} == {}


def test_shipped_folders_are_found() -> None:
    assets = import_module("simkv.assets")
    assert (assets.asset_folder("samples") / "README.md").is_file()
    assert (assets.asset_folder("profiles") / "README.md").is_file()
