"""The language of the code: no definition has a name of the private language of earlier releases, no two public
classes share a name, and no sentence of that language is left.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("dynadiag", "minifier", "tui")

# Modules and definitions had these names. Case and underscores at the ends count for nothing.
OLD_NAMES = frozenset(
    word
    for line in (
        "abreast arms here reach referee ending forking joining workplace writes facts interpreted task arm",
        "contents twins together conclude hear below asks underivable seen interposing directions fakes rows",
        "switches climb ahead beside halves forget passengers point group side_finds tell likeness signs raising",
        "place bisected writing akin shows corrupted surroundings carrier taught given shown anatomy wiring",
        "earlier storages dissect hull regridded oracled ledger joined severed firm voting holdings known spelling",
        "alike printed replaced cached callers roles linked survey jobs built unit thread how made transfer nodeof",
        "located untold calls names origins warm devices naming ownership reading way_in row subject race standing",
        "pays_after pieces words hanging called forest hunt hits search finding searching searchlines linking",
        "ownlines panewords reasons heading lexing board sift fine go_on most few least patience obeyed sought",
        "told met asked",
    )
    for word in line.split()
)

# Those of the old names that are the right word for something else.
RIGHT_WORD_FOR = {
    "alike": "a key of explain's JSON: the number of the set of processes that are alike",
    "bisected": "a key of minify's JSON",
    "cached": "a key of minify's and compare's JSON: answers that came from memory or a cache",
    "called": "the stack of calls that leads to a finding; a report labels it so",
    "callers": "the calls of a function",
    "calls": "calls of functions or kernels, or how many there were",
    "contents": "what a pack of recordings has",
    "facts": "records of `Fact`; the facts of a run, which recordings of searches keep",
    "finding": "a record of `Finding`, which explain's JSON lists",
    "fine": "passes that change little, against those that change much",
    "group": "a process group, or the kind of a decision in the recordings of searches and in `Verdict`",
    "hits": "matches of a search, or hits of a cache",
    "known": "a key of check's JSON: findings that the baseline has",
    "names": "names of functions, nodes or operators",
    "origins": "torch's own word: the FX nodes that an operation comes from",
    "pays_after": "a key of compare's JSON",
    "place": "where a finding is, on the HTML page",
    "printed": "what a program printed: keys of bisect's JSON and fields of runs",
    "reading": "opened to be read",
    "reasons": "why a guard failed: a key of explain's JSON",
    "roles": "what a color stands for",
    "row": "a row of a table",
    "rows": "the rows of a table; a key of compare's JSON",
    "search": "a search for a culprit, a fix or a text",
    "seen": "what a run of a program showed to minifier's observer",
    "shown": "what a report or the browser shows",
    "side_finds": "a key of the JSON of bisect and minify",
    "signs": "signs such as + and -",
    "subject": "what a guard is about",
    "switches": "the `Switch`es of a plan, which recordings of searches keep",
    "task": "work that a trial's process does",
    "warm": "a warm call: one that compiles nothing",
    "words": "the words that a report has for a kind",
    "writes": "buffers or files that are written",
    "writing": "the end of a pipe that is written to",
}

# A module is named after the command, the view or the artifact that it is for; these names say none.
NOT_TWICE = ("report", "search", "built", "warm", "skips")
NAMED_AFTER_A_COMMAND_OR_VIEW = ("dynadiag/commands", "tui/views")

SENTENCES = (
    "Tries two at once for what asks to remember: two sets, or one set and, where it may be the answer, all but that",
    "what it makes of a stretch from the beginning is what it made of all",
    "By the names of `nodes`, the line of the one of the others that each matches.",
    "for each of Dynamo's nodes that names a line of torch's; or all name none.",
    "A word with each of the user's functions before it runs",
    "Whether what was made small still fails as the program did.",
    "our hooks in its torch, and the word to the processes that it starts",
    "Have `together` make this one too as soon as a core would be idle",
    "with what it says beyond under names of its own",
    "the text of a line is known of their own one only",
    "torch would take each of its operators back first, in 50 ms",
    "it needs what no rung has, as the compiler's caches",
    "what ends it comes from no compiled graph, and the results of none differ beyond rounding",
    "also write how lines of kernels belong to yours, for SQL",
    "Dynamo no longer traces our own frames and fails in them",
)
PRONOUN = re.compile(r"\b(he|his|him|himself)\b", re.IGNORECASE)  # the user is "you" or "they"


@cache
def product_files() -> list[Path]:
    return sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))


def prose_files() -> list[Path]:
    """Whatever a reader of the code or of the documentation meets."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "dynadiag").rglob("*.j2")]
    programs = [*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "samples").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    return [file for file in (*product_files(), *pages, *programs) if file != Path(__file__)]


@cache
def text_of(file: Path) -> str:
    return file.read_text()


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(text_of(file))


def definitions(tree: ast.AST, inside_function: bool = False) -> Iterator[tuple[str, int]]:
    """The name and line of each class, function and method, and of each constant and field."""
    for node in ast.iter_child_nodes(tree):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif not inside_function and isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = (name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
            yield from ((name.id, name.lineno) for name in names)
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):  # no expression defines what we look for
            yield from definitions(node, inside_function or is_function)


def test_no_definition_has_an_old_name() -> None:
    found = []
    for file in product_files():
        where = file.relative_to(ROOT)
        named = [(file.parent.name if file.stem == "__init__" else file.stem, 1)]
        for name, line in [*named, *definitions(tree_of(file))]:
            plain = name.strip("_").lower()
            if plain in OLD_NAMES and plain not in RIGHT_WORD_FOR:
                found.append(f"{where}:{line}: {name}")
    assert found == []


def test_each_exception_is_needed() -> None:
    names = {name.strip("_").lower() for file in product_files() for name, _ in definitions(tree_of(file))}
    modules = {file.stem for file in product_files()}
    assert set(RIGHT_WORD_FOR) <= OLD_NAMES
    assert set(RIGHT_WORD_FOR) - names - modules == set()


def test_definitions_are_found_wherever_they_are() -> None:
    text = """
A, (B, C) = 1, (2, 3)
D: int = 4
if A:
    def f():
        local = 1
        class E:
            g: int
            async def h(self): ...
"""
    assert [name for name, _ in definitions(ast.parse(text))] == ["A", "B", "C", "D", "f", "E", "h"]


def test_no_two_modules_define_a_public_class_of_one_name() -> None:
    places = defaultdict(list)
    for file in product_files():
        for node in tree_of(file).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


@pytest.mark.parametrize("name", NOT_TWICE)
def test_no_two_modules_have_one_empty_name(name: str) -> None:
    files = [str(file.relative_to(ROOT)) for file in product_files() if file.stem == name]
    assert len([file for file in files if not file.startswith(NAMED_AFTER_A_COMMAND_OR_VIEW)]) <= 1, files


def as_one_line(text: str) -> str:
    """Text whose words are one blank apart, without the marks of comments."""
    return " ".join(re.sub(r"^\s*#+:?", " ", text, flags=re.MULTILINE).split())


def test_no_sentence_of_the_old_language_is_left() -> None:
    found = []
    for file in prose_files():
        text = as_one_line(text_of(file))
        found += [f"{file.relative_to(ROOT)}: {sentence}" for sentence in SENTENCES if sentence in text]
    assert found == []


def test_the_user_is_no_he() -> None:
    found = []
    for file in prose_files():
        for number, line in enumerate(text_of(file).splitlines(), 1):
            if PRONOUN.search(line):
                found.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()}")
    assert found == []
