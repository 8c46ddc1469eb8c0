"""The pages tell the truth: Python on them runs, commands are understood, what they name exists."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from simkv.cli.app import app
from simkv.sweep.grid import read_sweep
from simkv.workload.readers.formats import FORMATS
from simkv.workload.readers.plain import NAMES as CSV_NAMES

ROOT = Path(__file__).parents[1]
SKIPPED = {".venv", ".git", "results", "node_modules"}
PAGES = sorted(p for p in ROOT.rglob("*.md") if not SKIPPED & set(p.relative_to(ROOT).parts))
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
TOML_BLOCK = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(r"`((?:simkv|tests|traces|scripts|experiments|docs)/[\w./-]+)(?:::(\w+))?")
GLOSSARY_ROW = re.compile(r"^\| *([^|]+?) *\|[^|]*\| *([^|]*?) *\|$", re.MULTILINE)
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")

with_python = [
    page
    for page in PAGES
    if page.parent in {ROOT, ROOT / "docs"} and PYTHON_BLOCK.search(page.read_text())
]


@pytest.mark.parametrize("page", with_python, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_python_on_the_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for number, block in enumerate(PYTHON_BLOCK.findall(page.read_text()), start=1):
        exec(compile(block, f"{page.name}, block {number}", "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_on_the_page_resolve(page: Path) -> None:
    broken = []
    for target in LINK.findall(CODE.sub("", page.read_text())):
        path, _, anchor = target.partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        end = page.parent / path if path else page
        if not end.exists() or (anchor and anchor not in anchors_of(end)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_and_tests_named_on_the_page_exist(page: Path) -> None:
    missing = []
    for path, name in NAMED.findall(page.read_text()):
        file = ROOT / path
        if not file.exists() or (name and not defines(file, name)):
            missing.append(f"{path}::{name}" if name else path)
    assert missing == []


def defines(file: Path, name: str) -> bool:
    """Whether a module defines a name at its top level."""
    return (
        re.search(rf"^((def|class) {name}\b|{name} = )", file.read_text(), re.MULTILINE) is not None
    )


def test_every_trace_format_is_on_the_page_about_usage() -> None:
    page = (ROOT / "docs" / "usage.md").read_text()
    missing = [known.name for known in FORMATS if f"| `{known.name}` | {known.about} |" not in page]
    assert missing == []


def test_every_column_of_a_csv_is_on_the_page_about_usage() -> None:
    page = (ROOT / "docs" / "usage.md").read_text()
    names = [name for meaning in CSV_NAMES.values() for name in meaning]
    assert [name for name in names if f"`{name}`" not in page] == []


def test_the_sweep_on_the_page_about_usage_is_read(tmp_path: Path) -> None:
    (block,) = TOML_BLOCK.findall((ROOT / "docs" / "usage.md").read_text())
    (tmp_path / "my_trace.csv").write_text("prompt_tokens,output_tokens\n1,1\n")
    (tmp_path / "my_sweep.toml").write_text(block)
    assert len(read_sweep(tmp_path / "my_sweep.toml").arms) == 6


COMMANDS = sorted(
    {
        re.split("[#>]", line)[0].rstrip()
        for page in PAGES
        for block in BLOCK.findall(page.read_text())
        for line in re.findall(r"^simkv .*$", block, re.MULTILINE)
    }
)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_on_pages_are_understood(command: str) -> None:
    app.parse_args(command.split()[1:], exit_on_error=False, print_error=False)


def anchors_of(page: Path) -> set[str]:
    """Anchors of a page's headings, spelled as GitHub spells them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_no_identifier_is_a_word_that_the_glossary_replaces() -> None:
    rows = GLOSSARY_ROW.findall((ROOT / "docs" / "glossary.md").read_text())
    banned = {
        word.strip("` "): term
        for term, replaced in rows
        for word in replaced.split(",")
        if word.startswith("`")
    }
    assert "page" in banned
    # A sweep's summary is printed on a page, so there the word is right.
    paths = set((ROOT / "simkv").rglob("*.py")) - set((ROOT / "simkv" / "sweep").rglob("*.py"))
    found = [
        f"{path.relative_to(ROOT)}: {name} (say {banned[word]})"
        for path in sorted(paths)
        for name in identifiers_of(path)
        for word in words_of(name)
        if word in banned
    ]
    assert found == []


def identifiers_of(path: Path) -> Iterator[str]:
    """Every name that a module gives: functions, classes, arguments, targets."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def words_of(name: str) -> Iterator[str]:
    """Split an identifier into lower-case words, plural and singular alike."""
    for word in WORD.findall(name):
        yield word.lower()
        yield word.lower().removesuffix("s")
