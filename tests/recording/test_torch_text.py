"""torch's sentences on guards: each is printed by the installed torch, and read into the facts of the failure."""

from __future__ import annotations

import ast
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._utils import ExceptionWrapper

import dynadiag
from dynadiag.recording.torch_text.break_types import join_fragments
from dynadiag.recording.torch_text.failures import read_failure as read_failed_compile
from dynadiag.recording.torch_text.failures import unwrapped_error
from dynadiag.recording.torch_text.guards import completed, read_condition, read_failure
from tests.explanation.build import a_failure

x = torch.ones(4)
PACKAGE = Path(dynadiag.__file__).parent


class Reasons(logging.Handler):
    """Collects the texts of recompile reasons from torch's structured trace."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        metadata = getattr(record, "metadata", {})
        if metadata.get("artifact", {}).get("name") == "recompile_reasons":
            payload: Any = getattr(record, "payload", "")
            self.texts.append(payload() if callable(payload) else payload)


@pytest.fixture
def reasons() -> Iterator[list[str]]:
    torch._dynamo.reset()
    logger, handler = logging.getLogger("torch.__trace"), Reasons()
    level = logger.level
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    yield handler.texts
    logger.removeHandler(handler)
    logger.setLevel(level)
    torch._dynamo.reset()


class Held:
    scale = 2


def with_attribute(compiled: Callable[..., Any]) -> None:
    compiled(x, Held())
    held = Held()
    held.scale = 3
    compiled(x, held)


def without_gradients(compiled: Callable[..., Any]) -> None:
    compiled(x)
    with torch.no_grad():
        compiled(x)


def calls(*each: tuple[Any, ...]) -> Callable[[Callable[..., Any]], None]:
    def run(compiled: Callable[..., Any]) -> None:
        for arguments in each:
            compiled(*arguments)

    return run


# A function, calls of which the second makes torch print its sentence, and the part, subject, index, was and now.
SENTENCES: dict[str, tuple[Callable[..., Any], Callable[..., None], tuple[str | None, ...]]] = {
    "a size": (lambda v: v * 2, calls((x,), (torch.ones(5),)), ("size", "v", "0", "4", "5")),
    "a rank": (lambda v: v * 2, calls((x,), (x[None],)), ("rank", "v", None, "1", "2")),
    "a dtype": (lambda v: v * 2, calls((x,), (x.double(),)), ("dtype", "v", None, "Float", "Double")),
    "a stride": (
        lambda v: v * 2,
        calls((torch.ones(3, 4),), (torch.ones(4, 3).t(),)),
        ("stride", "v", "0", "4", "1"),
    ),
    "gradients": (
        lambda v: v * 2,
        calls((x,), (torch.ones(4, requires_grad=True),)),
        ("requires_grad", "v", None, "False", "True"),
    ),
    "a number": (lambda v, n: v * n, calls((x, 2), (x, 3)), ("value", "n", None, "2", None)),
    "a length": (
        lambda v, items: v + len(items),
        calls((x, [1]), (x, [1, 2])),
        ("length", "items", None, "length 1", None),
    ),
    "None": (
        lambda v, o: v * 2 if o is None else v + o,
        calls((x, None), (x, x)),
        ("value", "o", None, "None", None),
    ),
    "a membership": (
        lambda v, s: v + 1 if "a" in s else v - 1,
        calls((x, {"b"}), (x, {"a"})),
        ("membership", "s", "'a'", "absent", "present"),
    ),
    "a mode": (lambda v: v * 2, without_gradients, ("state", None, "grad_mode", None, None)),
    "a range of sizes": (
        lambda v: v + 1 if v.shape[0] > 10 else v - 1,
        calls((x,), (torch.ones(5),), (torch.ones(40),)),
        ("shape", "v", "range", None, None),
    ),
}


@pytest.mark.parametrize("kind", SENTENCES)
def test_a_sentence_of_this_torch_is_read(kind: str, reasons: list[str]) -> None:
    function, run, facts = SENTENCES[kind]
    run(torch.compile(function, backend="eager"))
    text = reasons[-1] if not reasons[-1].startswith("[") else ast.literal_eval(reasons[-1])[0]
    (failure,) = read_failure(text, "0/0")
    subject = failure.subject and failure.subject.removeprefix("L['").removesuffix("']")
    assert (failure.part, subject, failure.index, failure.was, failure.now) == facts


def test_an_attribute_that_is_gone_is_no_device() -> None:
    failure = a_failure("L['cache'].device exists", source="L['cache'].device", was="present", now="gone")
    assert (failure.part, failure.subject) == ("presence", "L['cache'].device")


@pytest.mark.parametrize(
    ("text", "index", "terms"),
    [
        ("2 <= L['x'].size()[1]", "above one", ("L['x'].size()[1]",)),
        ("(L['x'].size()[1] % 8) == 0", "multiple", ("L['x'].size()[1]",)),
        ("(L['x'].size()[1] // 2) == 4", "number", ("L['x'].size()[1]",)),
        ("L['x'].size()[0] == L['y'].size()[0]", "together", ("L['x'].size()[0]", "L['y'].size()[0]")),
        ("((-1)*L['lr']) == (-0.02)", "number", ("L['lr']",)),
        ("2*(L['x'].size()[1] // 2) == L['x'].size()[1]", "range", ("L['x'].size()[1]",)),
        ("L['s'] > 0.0", "range", ("L['s']",)),
    ],
)
def test_what_an_expression_demands(text: str, index: str, terms: tuple[str, ...]) -> None:
    failure = read_condition(text)
    assert (failure.part, failure.index, failure.terms) == ("shape", index, terms)


@pytest.mark.parametrize("key", ["train/loss", "a * b", "a is b", "it's"])
@pytest.mark.parametrize(
    ("text", "part", "was"),
    [("{}.weight == 4", "value", "4"), ("{} is None", "value", "None"), ("len({}) == 2", "length", "length 2")],
)
def test_a_key_may_have_what_operators_are_written_with(key: str, text: str, part: str, was: str) -> None:
    item = f"L['logged'][{key!r}]"
    failure = read_condition(text.format(item))
    assert (failure.part, failure.was, failure.terms) == (part, was, ())
    assert (failure.source or "").startswith(item)
    assert failure.guard == text.format(item)


def test_a_key_that_is_gone_is_one_of_the_keys() -> None:
    failure = read_condition("list(dict.keys(L['feats']))[2] exists")
    assert (failure.part, failure.subject) == ("keys", "L['feats']")


def test_a_failure_of_an_old_recording_has_its_facts_again() -> None:
    old = a_failure("g", source="L['x'].size()[0]", was="4", now="5")
    assert completed(old) == old
    assert (old.part, old.subject, old.index, old.base) == ("size", "L['x']", "0", "argument")


# The packages that read recordings and show them. Those that run programs (`trial`, `minify`, ...) read their output.
ABOVE: tuple[str, ...] = (
    "caches",
    "check",
    "commands",
    "diff",
    "explanation",
    "fixes",
    "job",
    "kernels",
    "mcp",
    "render",
    "testing",
    "triage",
)
# What their patterns are for, none of which is a sentence of torch's or of ours.
SOURCE, CODE, GRAPH, PATHS = "Python source", "generated code", "printed graphs", "paths"
KEYS, TYPED, LAYOUT = "values in the keys of caches", "what a user types", "the layout of lines"
PATTERNS = {
    "dynadiag/caches/causes.py": KEYS,
    "dynadiag/caches/key_changes.py": KEYS,
    "dynadiag/caches/source_changes.py": SOURCE,
    "dynadiag/caches/start_phases.py": "names of what torch times",
    "dynadiag/check/configuration.py": TYPED,
    "dynadiag/check/proved_fixes.py": "unified diffs",
    "dynadiag/commands/common.py": LAYOUT,
    "dynadiag/commands/explain.py": TYPED,
    "dynadiag/diff/canonical_graph.py": GRAPH,
    "dynadiag/diff/comparison.py": CODE,
    "dynadiag/diff/environment_differences.py": "names of options and variables",
    "dynadiag/diff/kernel_differences.py": CODE,
    "dynadiag/explanation/blocks.py": SOURCE,
    "dynadiag/explanation/output_remedies.py": SOURCE,
    "dynadiag/explanation/failures.py": PATHS,
    "dynadiag/explanation/glossary.py": "words of a report that the glossary has",
    "dynadiag/fixes/call_record.py": "names of attributes, and addresses",
    "dynadiag/fixes/observer.py": SOURCE,
    "dynadiag/fixes/overlay_file.py": SOURCE,
    "dynadiag/fixes/pickled_call.py": "names of files that it writes",
    "dynadiag/fixes/printed_output.py": "what a program prints",
    "dynadiag/fixes/rewrites/branch_statement.py": SOURCE,
    "dynadiag/fixes/rewrites/buffer_choices.py": SOURCE,
    "dynadiag/fixes/rewrites/chances.py": SOURCE,
    "dynadiag/fixes/rewrites/call_sites.py": SOURCE,
    "dynadiag/fixes/rewrites/check_messages.py": SOURCE,
    "dynadiag/fixes/rewrites/config_lines.py": SOURCE,
    "dynadiag/fixes/rewrites/effects.py": SOURCE,
    "dynadiag/fixes/rewrites/expert_loops.py": SOURCE,
    "dynadiag/fixes/rewrites/kept_tensors.py": SOURCE,
    "dynadiag/fixes/rewrites/known_numbers.py": SOURCE,
    "dynadiag/fixes/rewrites/library_calls.py": SOURCE,
    "dynadiag/fixes/rewrites/library_properties.py": SOURCE,
    "dynadiag/fixes/rewrites/number_attributes.py": SOURCE,
    "dynadiag/fixes/rewrites/numpy_calls.py": SOURCE,
    "dynadiag/fixes/rewrites/outer_contexts.py": SOURCE,
    "dynadiag/fixes/rewrites/printing.py": SOURCE,
    "dynadiag/fixes/rewrites/requested_breaks.py": SOURCE,
    "dynadiag/fixes/rewrites/segment_attention.py": SOURCE,
    "dynadiag/fixes/rewrites/side_expressions.py": SOURCE,
    "dynadiag/fixes/rewrites/timers.py": SOURCE,
    "dynadiag/fixes/trials.py": SOURCE,
    "dynadiag/job/differences.py": GRAPH,
    "dynadiag/job/trace.py": GRAPH,
    "dynadiag/kernels/align.py": CODE,
    "dynadiag/kernels/cpp_wrapper.py": CODE,
    "dynadiag/kernels/document_links.py": "names of kernels, paths",
    "dynadiag/kernels/graph_parser.py": GRAPH,
    "dynadiag/kernels/kernel_diff.py": CODE,
    "dynadiag/kernels/memory.py": "names of placeholders, paths of modules",
    "dynadiag/kernels/line_table.py": CODE,
    "dynadiag/kernels/module_parser.py": CODE,
    "dynadiag/kernels/stages.py": CODE,
    "dynadiag/render/clean.py": LAYOUT,
    "dynadiag/render/kernels.py": LAYOUT,
    "dynadiag/render/markdown.py": LAYOUT,
    "dynadiag/render/page/page.py": LAYOUT,
    "dynadiag/render/paths.py": PATHS,
    "dynadiag/render/printer.py": LAYOUT,
    "dynadiag/render/readable_graph.py": GRAPH,
    "dynadiag/render/report.py": "ids of graph breaks",
    "dynadiag/render/sarif.py": LAYOUT,
    "dynadiag/render/wrap.py": LAYOUT,
    "dynadiag/triage/duplicates.py": "words that a search takes",
    "dynadiag/triage/issue.py": "the environment that torch collects",
    "dynadiag/triage/issue_program.py": SOURCE,
    "tui/command_process.py": "what a command of ours prints for a user, in a process of its own",
    "tui/diff_sides.py": GRAPH,
    "tui/documents.py": CODE,
    "tui/graph_screen.py": PATHS,
    "tui/views/guards.py": "the name of a value in a condition",
    "tui/kernel_stages.py": CODE,
    "tui/line_actions.py": PATHS,
    "tui/line_links.py": CODE,
    "tui/graph_node.py": GRAPH,
    "dynadiag/explanation/search.py": TYPED,
    "tui/styled_report.py": LAYOUT,
    "tui/widgets/styled_lines.py": LAYOUT,
    "tui/widgets/table.py": LAYOUT,
}
# Words of several parts that name a fact, and are compared.
FACTS = {"torch function modes", "in inference mode", "left inference mode", "an inference tensor"}
FACTS |= {"the program's inputs", "math domain error"}  # the name of a variant of fix, and Python's own error
COMPARED = ("startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition", "find", "index")


def modules_above() -> Iterator[tuple[str, ast.Module]]:
    files = [file for name in ABOVE for file in (PACKAGE / name).rglob("*.py")]
    files += (PACKAGE.parent / "tui").rglob("*.py")
    for file in sorted(files):
        yield str(file.relative_to(PACKAGE.parent)), ast.parse(file.read_text())


def compared_texts(module: ast.Module) -> Iterator[str]:
    """The constants that a module looks for in a text, also by a name of the module's own."""
    names = {
        node.targets[0].id: node.value
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(module):
        looked_for: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            looked_for = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in COMPARED:
            looked_for = node.args[:1]
        for value in looked_for:
            constant = names.get(value.id, value) if isinstance(value, ast.Name) else value
            parts = constant.elts if isinstance(constant, (ast.Tuple, ast.List, ast.Set)) else [constant]
            yield from (part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str))


def test_patterns_above_are_on_sources_and_listings() -> None:
    """What torch wrote is read in `torch_text`; above it there are facts."""
    imports = {
        name
        for name, module in modules_above()
        for node in ast.walk(module)
        if isinstance(node, ast.Import) and any(alias.name == "re" for alias in node.names)
    }
    assert sorted(imports ^ {*PATTERNS}) == []


def test_no_module_above_looks_for_a_sentence() -> None:
    texts = {
        f"{name}: {text}"
        for name, module in modules_above()
        if not name.startswith("dynadiag/kernels/")  # they look for generated code
        for text in compared_texts(module)
        if len(text.split()) > 2 and text not in FACTS
    }
    assert not texts


def test_hints_that_were_cut_where_a_literal_was_are_whole_sentences() -> None:
    cut = ["Use f() to ", "Register it", "with torch.", "Report it.", "Avoid it."]
    assert join_fragments(cut) == ("Use f() to Register it with torch.", "Report it.", "Avoid it.")
    assert join_fragments(["", "Report it."]) == ("Report it.",)


@pytest.mark.parametrize(
    ("said", "lacks", "absent"),
    [
        (
            "/usr/bin/ld: cannot find -lgomp: No such file or directory\ncollect2: error: ld returned 1",
            "library",
            "gomp",
        ),
        ("ld.lld: error: unable to find library -lgomp\nclang++: error: linker command failed", "library", "gomp"),
        ("ld: library not found for -lomp\nclang: error: linker command failed", "library", "omp"),
        ("a.cpp:3:10: fatal error: Python.h: No such file or directory\ncompilation terminated.", "header", "Python.h"),
        ("a.cpp:3:10: fatal error: 'Python.h' file not found\n1 error generated.", "header", "Python.h"),
        ("(.text+0x17): undefined reference to `main'\ncollect2: error: ld returned 1 exit status", None, None),
    ],
)
def test_what_a_compiler_or_linker_does_not_find_is_read(said: str, lacks: str | None, absent: str | None) -> None:
    found = read_failed_compile(
        f"InductorError: CppCompileError: C++ compile error\n\nCommand:\ng++ a.cpp\n\nOutput:\n{said}"
    )
    assert (found.lacks, found.absent) == (lacks, absent)
    assert found.compiler_error is not None
    assert "ld returned" not in found.compiler_error
    assert "command failed" not in found.compiler_error


def test_what_a_worker_raised_is_the_error_itself() -> None:
    try:
        raise ValueError("no such row\nmore")
    except ValueError:
        wrapped = ExceptionWrapper(where="in DataLoader worker process 0")
    with pytest.raises(ValueError, match="Caught ValueError in DataLoader") as raised:
        wrapped.reraise()
    assert unwrapped_error("ValueError", str(raised.value)) == ("ValueError", "no such row\nmore\n")


def test_what_happened_is_told_before_what_torch_considers() -> None:
    said = "Consider annotating your code using torch._check*(). Could not guard on data-dependent expression u0 > 0"
    assert read_failed_compile(said).message == "Could not guard on data-dependent expression u0 > 0"
    found = "Expected the same metadata but found:\npair[0] differ in 'dtype'"
    assert read_failed_compile(found).message == "Expected the same metadata but found: pair[0] differ in 'dtype'"
