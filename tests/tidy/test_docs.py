"""Documentation that cannot go stale: links resolve, commands and examples exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
RUN_WORD = re.compile(r"\./run ([a-z]+)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_resolve(page: Path) -> None:
    targets = [t.split("#")[0] for t in LINK.findall(page.read_text()) if "://" not in t]
    broken = [t for t in targets if t and not (page.parent / t).exists()]
    assert not broken, f"{name(page)} links to what is not there: {broken}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_run_words_exist(page: Path) -> None:
    words = set(re.findall(r"^  ([a-z]+) *\|?.*\)", (ROOT / "run").read_text(), re.MULTILINE))
    unknown = set(RUN_WORD.findall(page.read_text())) - words
    assert not unknown, f"{name(page)} names words that ./run does not know: {unknown}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_python_examples_are_python(page: Path) -> None:
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)):
        compile(block, f"{name(page)}, example {number + 1}", "exec")
