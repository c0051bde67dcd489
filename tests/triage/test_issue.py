"""The issue of a triage: what it says, that its commands are right, and that foreign text stays text."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch

from dynadiag.bisection.document import FailureDocument
from dynadiag.bisection.verdict import Culprit, Verdict
from dynadiag.minify.minify_result import (
    ComparedDocument,
    MinifyResult,
    NeighbourDocument,
    ReproCulpritDocument,
    ValueRow,
    minify_document,
)
from dynadiag.render.json_document import encode
from dynadiag.render.markdown import inline_code
from dynadiag.triage.case import TriagedCase, lines_at_fault
from dynadiag.triage.document import PartDocument, redacted_bisect, redacted_minify
from dynadiag.triage.issue import issue_text
from dynadiag.trial.signature import Signature
from tests.hostile import HOSTILE, assert_no_control, assert_no_workflow_command

SECRETS = ("hunter2", "alice", "classified")


def a_case(text: str = "relu", **values: object) -> TriagedCase:
    """A case in which ``text`` stands wherever the program's can."""
    failure = Signature("exception", f"mine.{text}", f"{text}\nmore", "torch/_inductor/lowering.py:3 in f", f"{text}:3")
    culprit = Culprit("lowering", text, "0/0", "forward", ((f"/home/user/{text}.py", 7),), (text,))
    rungs = {"uncompiled": "pass", "eager": "pass", "inductor": "same", "triton": "not_run"}
    verdict = Verdict(
        "found", rungs, "inductor", failure, (culprit,), (text,), (text,), (f"with {text} off it passes",), target=text
    )
    made = MinifyResult("reduced", "inductor", failure, failure, f"import torch\n{text!r}\n", printed=text)
    made = replace(made, nodes_before=9, nodes_after=1, proved=True, proof=(f"uncompiled: {text}",), notes=(text,))
    case = TriagedCase(
        bisect=verdict.document(),
        minify=minify_document(made, text),
        explain=None,
        parts=(PartDocument("explain", "failed", f"ValueError: {text}", 1.0, ()),),
        environment="PyTorch version: 2.13.0",
        repro=made.text,
        program=f"import torch\n{text!r}\n",
        output=text,
        repro_output=text,
        command="train.py --lr 1",
    )
    return replace(case, **values)  # type: ignore[arg-type]  # the fields of a test


def outside_code(markdown: str) -> str:
    """The Markdown without its code."""
    text = re.sub(r"(?ms)^(`{3,})\w*\n.*?^\1$", "", markdown)
    return re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", text)


def commands(markdown: str) -> list[str]:
    return re.findall(r"(?ms)^```sh\n(.*?)^```$", markdown)[0].splitlines()


def test_it_has_the_parts_of_the_template() -> None:
    text = issue_text(a_case())
    assert re.findall(r"(?m)^### (.*)", text) == ["🐛 Describe the bug", "Error logs", "Versions"]
    assert "| `uncompiled` | passes |" in text
    assert "| `inductor` | fails |" in text
    assert "triton" not in text
    assert "| lowering | `relu` | `relu.py:7, forward 0/0` |" in text
    assert "Reduced from 9 operations to 1. In a fresh process it fails in the same way" in text
    assert "- explain: failed: `ValueError: relu`" in text
    assert "/home/user" not in text


def test_its_title_has_the_message_the_backend_and_the_culprit() -> None:
    first, *_ = issue_text(a_case()).splitlines()
    assert first == "# torch.compile with backend `inductor`: `relu: relu`, at fault: lowering `relu`"


def test_a_wrong_result_is_told_where_the_program_only_has_an_exception_of_its_own() -> None:
    case, message = a_case(), "output 0 differs in 3 of 6 elements, by up to 1.54 (rtol 1e-06, atol 1e-05)"
    assert case.minify is not None
    failure = FailureDocument("wrong_result", "wrong_result", f"GraphModule: {message}", None, None)
    text = issue_text(replace(case, minify=replace(case.minify, failure=failure, nodes_before=1, minimal=True)))
    assert "`wrong result: output 0 differs in 3 of 6 elements, by up to 1.54`" in text.splitlines()[0]
    told = message.partition(" (rtol")[0]  # the repro has a tolerance of its own
    said = f'Compiled with `backend="inductor"`, it gives a wrong result: `{told}`. Uncompiled it passes.'
    assert text.split("### 🐛 Describe the bug\n\n")[1].startswith(said)
    assert "Nothing of it can go: it has 1 operation. In a fresh process it fails in the same way" in text


@pytest.mark.parametrize(
    ("of_program", "told"),
    [
        ("output 0 differs in 24 of 24 elements, by up to 0.4", "1 of 16 elements differ, by up to 0.0861"),
        ("gradient of input 'w' differs in 6 of 6 elements", "gradient: 1 of 16 elements differ, by up to 0.0861"),
        (
            "input 'w' afterwards differs in 6 of 6 elements",
            "input after the call: 1 of 16 elements differ, by up to 0.0861",
        ),
    ],
)
def test_a_wrong_result_is_told_as_the_proved_repro_shows_it(of_program: str, told: str) -> None:
    raised = raised_by_comparing(torch.arange(16.0), 0.0861)
    case = a_case(shown=FailureDocument("exception", "AssertionError", raised, None, None))
    assert case.minify is not None
    failure = FailureDocument("wrong_result", "wrong_result", f"GraphModule: {of_program}", None, None)
    minify = replace(case.minify, failure=failure)
    without = issue_text(replace(case, minify=minify))
    assert "gradient: " not in without  # the repro compares results, which are wrong too
    case = replace(case, repro=f"{case.repro}\nf(x).sum().backward()\n")
    text = issue_text(replace(case, minify=minify))
    assert f"`wrong result: {told}`" in text.splitlines()[0]
    assert f"the repro below gives a wrong result: `{told}`." in text
    assert of_program not in text
    unproved = issue_text(replace(case, minify=replace(minify, proved=False)))
    assert f"`wrong result: {of_program}`" in unproved.splitlines()[0]


def test_an_assertion_of_the_program_comes_before_memory_that_is_shared() -> None:
    case = a_case()
    assert case.minify is not None
    assert case.bisect is not None
    shared = "output 0 and x share memory; uncompiled they do not"
    own = FailureDocument("exception", "AssertionError", "the buffer holds 300.0", None, None)
    failure = FailureDocument("wrong_result", "wrong_result", f"GraphModule: {shared}", None, None)
    bisect, minify = replace(case.bisect, failure=own), replace(case.minify, failure=failure, symptom=own)
    text = issue_text(replace(case, bisect=bisect, minify=minify))
    assert "`wrong result: an assertion fails: the buffer holds 300.0`" in text.splitlines()[0]
    assert f"a compiled call of the program gives a wrong result: `{shared}`." in text
    assert "300.0" in issue_text(replace(case, bisect=None, minify=minify)).splitlines()[0]


def test_the_words_that_the_program_raises_itself_are_searched_for_only_without_a_name() -> None:
    case = a_case()
    assert case.bisect is not None
    own = FailureDocument("exception", "RuntimeError", "the log is short", None, None)
    searched = [
        issue_text(replace(case, minify=None, bisect=replace(case.bisect, culprits=culprits, failure=failure)))
        .split("Search for duplicates: ")[1]
        .splitlines()[0]
        for failure, culprits in (
            (own, case.bisect.culprits),
            (replace(own, asserted="raise RuntimeError(text)"), case.bisect.culprits),
            (replace(own, asserted="raise RuntimeError(text)"), ()),
        )
    ]
    assert "the+log+is+short+relu" in searched[0]
    assert "+in%3Atitle+relu>" in searched[1]
    assert "the+log+is+short" in searched[2]  # no name to search for instead


@pytest.mark.parametrize(
    ("own", "told"),
    [
        (
            FailureDocument("exception", "AssertionError", "", None, None, asserted="out.sum() == 4"),
            "The program asserts `out.sum() == 4`. Uncompiled it holds; compiled it does not.",
        ),
        (
            FailureDocument("exception", "AssertionError", "0.0 left\nmore", None, None, asserted="out.any()"),
            "The program asserts `out.any()`. Uncompiled it holds; compiled it does not: `0.0 left`.",
        ),
        (
            FailureDocument("exception", "ValueError", "no root", None, None),
            "The program raises `ValueError: no root`; uncompiled it does not.",
        ),
        (
            FailureDocument("exception", "ValueError", "no root", None, None, asserted="raise ValueError('no root')"),
            "The program raises `ValueError: no root` in a statement of its own; uncompiled it does not.",
        ),
        (FailureDocument("exit", "1", "exit code 1", None, None), "The program ends with `exit code 1`; uncompiled"),
    ],
)
def test_how_the_program_itself_fails_comes_before_the_call_that_is_wrong(own: FailureDocument, told: str) -> None:
    case = a_case()
    assert case.minify is not None
    failure = FailureDocument("wrong_result", "wrong_result", "GraphModule: output 0 differs in 1 of 2", None, None)
    text = issue_text(replace(case, bisect=None, minify=replace(case.minify, failure=failure, symptom=own)))
    said = text.split("### 🐛 Describe the bug\n\n")[1]
    assert said.startswith(told)
    assert "a compiled call of the program gives a wrong result: `output 0 differs in 1 of 2`.\n" in said
    assert "Uncompiled it passes" not in said  # which the reader knows


def test_a_culprit_of_the_repro_that_two_graphs_have_is_one_row() -> None:
    case = a_case()
    assert case.minify is not None
    parts = tuple(ReproCulpritDocument("pattern", "randperm", graph) for graph in (None, "forward", "backward"))
    text = issue_text(replace(case, bisect=None, minify=replace(case.minify, bisected=parts)))
    assert text.count("| pattern | `randperm` | forward, backward |") == 1


def raised_by_comparing(right: torch.Tensor, difference: float) -> str:
    wrong = right.clone()
    wrong[2] += difference
    with pytest.raises(AssertionError) as raised:
        torch.testing.assert_close(wrong, right, rtol=0.01, atol=0.01)
    return str(raised.value)


@pytest.mark.parametrize(
    ("kind", "type_", "message", "said"),
    [
        ("exception", "ValueError", "no\nmore", "raises `ValueError: no` in `torch/a.py:1 in f`"),
        ("signal", "SIGSEGV", "killed by SIGSEGV", "is killed by `SIGSEGV`"),
        ("exit", "3", "exit code 3", "ends with `exit code 3`"),
        ("exit", "1", "exit code 1: too few", "ends with `exit code 1: too few`"),
        ("hang", "timeout", "did not end in time", "does not end"),
        ("nan", "nan", "GraphModule: output 0", "gives NaN or infinity where it is finite uncompiled: `output 0`"),
    ],
)
def test_its_first_sentence_says_how_it_fails(kind: str, type_: str, message: str, said: str) -> None:
    case = a_case(minify=None, repro="")
    assert case.bisect is not None
    failure = FailureDocument(kind, type_, message, "torch/a.py:1 in f", None)
    text = issue_text(replace(case, bisect=replace(case.bisect, failure=failure, rung="eager")))
    told = f'Compiled with `backend="eager"` (Dynamo alone), it {said}. Uncompiled it passes.'
    assert text.split("### 🐛 Describe the bug\n\n")[1].startswith(told)


def test_its_title_is_short_and_names_no_frame_of_the_program() -> None:
    case = a_case()
    assert case.minify is not None
    assert case.bisect is not None
    told = FailureDocument(
        "exception",
        "torch._inductor.exc.InductorError",
        "GraphModule: Lowering:\n\n  target: relu\n  args[0]",
        None,
        None,
    )
    frame = msgspec.structs.replace(case.bisect.culprits[0], kind="frame", name="step")
    text = issue_text(
        replace(case, minify=replace(case.minify, failure=told), bisect=replace(case.bisect, culprits=(frame,)))
    )
    assert text.splitlines()[0] == "# torch.compile with backend `inductor`: `InductorError: Lowering: target: relu`"


@pytest.mark.parametrize(
    ("type_", "message", "said"),
    [
        (
            "torch._dynamo.exc.BackendCompilerFailed",
            "backend='inductor' raised:\nRuntimeError: one of the variables was modified\nmore",
            "RuntimeError: one of the variables was modified",
        ),
        (
            "torch._dynamo.exc.InternalTorchDynamoError",
            "PendingUnbackedSymbolNotFound: Pending unbacked symbols {u0}",
            "PendingUnbackedSymbolNotFound: Pending unbacked symbols {u0}",
        ),
        (
            "torch._dynamo.exc.BackendCompilerFailed",
            "backend='inductor' raised:\nLoweringException: ValueError: nan\n  target: aten.amax",
            "ValueError: nan",
        ),
        ("AssertionError", "Tensor-likes are not close!\n\n", "wrong result: Tensor-likes are not close!"),
        (
            "AssertionError",
            "Tensor-likes are not close!\n\nMismatched elements: 22 / 24 (91.7%)\n"
            "Greatest absolute difference: 0.437 at index (2, 0) (up to 0.001 allowed)",
            "wrong result: 22 of 24 elements differ, by up to 0.437",
        ),
        ("AssertionError", "rotate() saw rows", "wrong result: an assertion fails: rotate() saw rows"),
        (
            "torch._dynamo.exc.Unsupported",
            "Unsupported function call\n  Explanation: Dynamo cannot trace `Rate`\n  Hint: Avoid it.",
            "Unsupported: Unsupported function call: Dynamo cannot trace `Rate`",
        ),
        ("ValueError", "word " * 40, f"ValueError: {'word ' * 20}word ..."),
    ],
)
def test_its_title_has_the_error_itself_in_whole_words(type_: str, message: str, said: str) -> None:
    case = a_case()
    assert case.minify is not None
    failure = FailureDocument("exception", type_, message, None, None)
    text = issue_text(replace(case, minify=replace(case.minify, failure=failure)))
    assert f": {inline_code(said)}" in text.splitlines()[0]


@pytest.mark.parametrize(("message", "told"), [("[]", "state == [1]"), ("", "state == [1]"), ("no rows", "no rows")])
def test_an_assertion_without_words_is_told_by_what_it_asserts(message: str, told: str) -> None:
    failure = FailureDocument("exception", "AssertionError", message, None, None)
    case = a_case(repro="import torch\nassert state == [1], state\n", shown=failure)
    assert case.minify is not None
    text = issue_text(replace(case, minify=replace(case.minify, failure=failure)))
    assert f"`wrong result: an assertion fails: {told}`" in text.splitlines()[0]


def test_the_title_of_a_crash_names_its_signal_once() -> None:
    case = a_case()
    assert case.minify is not None
    failure = FailureDocument("signal", "SIGSEGV", "killed by SIGSEGV", None, None)
    text = issue_text(replace(case, minify=replace(case.minify, failure=failure)))
    assert text.splitlines()[0].count("SIGSEGV") == 1


def test_a_broken_promise_comes_first_and_another_note_on_the_culprit_after_the_failure() -> None:
    case = a_case()
    assert case.bisect is not None
    told = "relu returns float16 where its fake kernel promises float32"
    for kind in ("operator", "lowering"):
        culprit = msgspec.structs.replace(case.bisect.culprits[0], kind=kind)
        bisect = replace(case.bisect, notes=(told,), culprits=(culprit,))
        first, second, *_ = (
            issue_text(replace(case, bisect=bisect)).split("### 🐛 Describe the bug\n\n")[1].split("\n\n")
        )
        assert (first if kind == "operator" else second) == f"`{told}`"
        assert issue_text(replace(case, bisect=bisect)).count(told) == 1
    assert case.minify is not None
    minify = replace(case.minify, notes=(told,), bisected=(ReproCulpritDocument("operator", "relu", None),))
    assert f"bug\n\n`{told}`" in issue_text(replace(case, bisect=None, minify=minify))


def test_a_search_for_duplicates_names_error_operator_and_file() -> None:
    (link,) = re.findall(r"<(https://\S+)>", issue_text(a_case()))
    assert link.endswith("?q=is%3Aissue+relu+lowering.py+torch.compile")
    of_source = a_case(bisect=None, repro="import torch\ncache.move_to_end('a')\ntorch.compile(step)(cache)\n")
    assert "+move_to_end+lowering.py+" in issue_text(of_source)
    of_method = a_case(bisect=None, repro="import torch\ntorch.compile([4].pop, dynamic=True)(0)\n")
    assert "+pop+lowering.py+" in issue_text(of_method)
    setting = (
        "import torch\ntorch.set_autocast_enabled('cpu', True)\ndef f(x):\n    torch._inner(x)\n    return x.sin()\n"
    )
    assert "+sin+lowering.py+" in issue_text(a_case(bisect=None, repro=setting))
    members = (
        "class A:\n    def __init__(self):\n        self.x.add_(1)\n    def __hash__(self):\n        return 1\n"
        "assert torch.compile(f)().tolist() == [len({A()})]\n"
    )
    assert "+__hash__+lowering.py+" in issue_text(a_case(bisect=None, repro=members))
    assert of_source.minify is not None
    for name, operator in (("aten.normal.Tensor_Tensor", "normal"), ("clamp_min_1", "clamp_min"), ("amin+mul", "amin")):
        minify = replace(of_source.minify, bisected=(ReproCulpritDocument("lowering", name, None),))
        named = replace(of_source, minify=minify, repro=f"import torch\ntorch.{operator}()\n")
        assert f"+{operator}+lowering.py+" in issue_text(named)
    minify = replace(of_source.minify, bisected=(ReproCulpritDocument("operator", "tiny.route.default", None),))
    assert "+move_to_end+lowering.py+" in issue_text(replace(of_source, minify=minify))
    for kind, name in (("lowering", "_low_memory_max_pool"), ("lowering", "full_default_1"), ("fusion", "a+slice_1")):
        minify = replace(of_source.minify, bisected=(ReproCulpritDocument(kind, name, None),))
        assert "+move_to_end+lowering.py+" in issue_text(replace(of_source, minify=minify))
    assert "https://" not in issue_text(a_case(redacted=True))


@pytest.mark.parametrize(
    ("type_", "message", "words"),
    [
        ("InternalTorchDynamoError", "KeyError: 'a'", "KeyError"),
        (
            "InternalTorchDynamoError",
            "AttributeError: 'Flag' object has no attribute '_value_'",
            "object has no attribute",
        ),
        (
            "RuntimeError",
            "one of the variables needed has changed: [torch.FloatTensor [1, 1]]",
            "one of the variables needed has changed",
        ),
        ("RuntimeError", "you're calling 'mine' here, which isn't right", "calling here which right"),
        ("RuntimeError", "a b c d e f g h i j", "a b c d e f g h"),
        ("TorchRuntimeError", "no matter what", "TorchRuntimeError"),
        ("Unsupported", "Unsupported call\n  Explanation: Dynamo cannot trace `f`", "Unsupported call"),
    ],
)
def test_a_search_has_the_words_of_a_message_whose_type_says_little(type_: str, message: str, words: str) -> None:
    case = a_case(bisect=None, repro="import torch\n")
    assert case.minify is not None
    failure = FailureDocument(
        "exception", f"torch._dynamo.exc.{type_}" if "Torch" in type_ else type_, message, None, None
    )
    text = issue_text(replace(case, minify=replace(case.minify, failure=failure)))
    assert f"?q=is%3Aissue+{words.replace(' ', '+')}+torch.compile>" in text


def test_an_assertion_without_words_in_torch_is_searched_for_by_its_type_and_file() -> None:
    case = a_case()
    assert case.minify is not None
    where, told = "torch/_inductor/lowering.py:4922 in scatter_reduce_", "target: aten.scatter.src\n  args[0]: x"
    failure = FailureDocument("exception", "AssertionError", told, where, None)
    text = issue_text(replace(case, bisect=None, minify=replace(case.minify, failure=failure)))
    assert "?q=is%3Aissue+AssertionError+" in text
    assert "+lowering.py+torch.compile>" in text
    assert "+target+" not in text


def test_the_file_of_a_package_is_no_word_to_search_for() -> None:
    case = a_case()
    assert case.minify is not None
    failure = FailureDocument("exception", "RuntimeError", "sizes are wrong", "torch/_prims/__init__.py:7 in f", None)
    text = issue_text(replace(case, bisect=None, minify=replace(case.minify, failure=failure)))
    assert "+torch.compile>" in text
    assert "__init__" not in text.split("Search for duplicates")[1].split("\n")[0]


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            "exit code 1: step 0: [2] instead of [3]",
            "label%3A%22oncall%3A+pt2%22%2C%22module%3A+inductor%22+in%3Atitle+relu",
        ),
        ("exit code 1: InductorError: what torch says", "InductorError+relu+torch.compile"),
    ],
)
def test_words_with_which_a_program_exits_are_searched_for_only_if_they_name_an_error(message: str, words: str) -> None:
    case = a_case("relu")
    assert case.bisect is not None
    bisect = replace(case.bisect, failure=FailureDocument("exit", "1", message, None, None))
    text = issue_text(replace(case, bisect=bisect, minify=None, program="import torch\ntorch.relu(1)\n"))
    assert f"?q=is%3Aissue+{words}>" in text


def test_what_makes_a_tensor_in_the_graph_is_searched_for_where_nothing_else_is_called() -> None:
    ranged = "import torch\ndef f(x):\n    return torch.arange(4) * x\ntorch.compile(f)(torch.ones(1))\n"
    case = a_case(bisect=None, repro=ranged)
    assert case.minify is not None
    kernel = (ReproCulpritDocument("kernel", "iota+mul", None),)
    failure = FailureDocument("wrong_result", "wrong_result", "output 0 differs in 1 of 4 elements", None, None)
    text = issue_text(replace(case, minify=replace(case.minify, bisected=kernel, failure=failure)))
    assert "+in%3Atitle+arange>" in text
    crash = replace(failure, kind="signal", type="SIGSEGV", message="killed by SIGSEGV")
    plus = "import torch\ndef f(x):\n    return x + 10\ntorch.compile(f)(torch.ones(1))\n"
    minify = replace(case.minify, bisected=(ReproCulpritDocument("graph", "0/0", None),), failure=crash)
    assert "?q=is%3Aissue+segfault+add+torch.compile>" in issue_text(replace(case, minify=minify, repro=plus))


def test_a_function_of_python_is_searched_for_where_nothing_of_torch_is_called() -> None:
    case = a_case(bisect=None, repro="import torch\nassert torch.compile(round, dynamic=True)(7, -1) == 10\n")
    assert case.minify is not None
    failure = FailureDocument("exception", "AssertionError", "bucket 14", None, None)
    text = issue_text(replace(case, minify=replace(case.minify, level="source", bisected=(), failure=failure)))
    assert "+in%3Atitle+round>" in text


def test_what_cpp_says_of_an_abort_is_in_title_sentence_and_search() -> None:
    crash = FailureDocument("signal", "SIGABRT", "killed by SIGABRT", None, None)
    printed = "terminate called after ...\n  what():  kernel, c1.main.cpp:29, index out of bounds: 0 <= tmp7 < 3L\n"
    case = a_case(bisect=None, repro="import torch\ntorch.compile(torch.relu)()\n", repro_output=printed)
    assert case.minify is not None
    text = issue_text(replace(case, minify=replace(case.minify, level="source", bisected=(), failure=crash)))
    assert "`SIGABRT: index out of bounds: 0 <= tmp7 < 3L`" in text.splitlines()[0]
    assert "is killed by `SIGABRT: index out of bounds: 0 <= tmp7 < 3L`" in text
    assert "?q=is%3Aissue+index+out+of+bounds+torch.compile>" in text


def test_an_error_with_words_is_not_searched_for_with_the_name_of_a_pass() -> None:
    failure = FailureDocument("exception", "RuntimeError", "scan might be aliasing", "torch/utils.py:9 in f", None)
    case = a_case(bisect=None, repro="import torch\ntorch.compile(torch.relu)()\n")
    assert case.minify is not None
    bisected = (ReproCulpritDocument("pass", "min_cut_rematerialization_partition", None),)
    text = issue_text(replace(case, minify=replace(case.minify, bisected=bisected, failure=failure)))
    assert "?q=is%3Aissue+scan+might+be+aliasing+utils.py+torch.compile>" in text


def test_a_special_method_that_is_called_is_searched_for_before_other_methods() -> None:
    repro = "import torch\ndef f(o):\n    o.items.update(a=1)\n    o.__getattribute__('b')\ntorch.compile(f)(1)\n"
    case = a_case(bisect=None, repro=repro)
    assert case.minify is not None
    failure = FailureDocument("exception", "AssertionError", "", None, None)
    text = issue_text(replace(case, minify=replace(case.minify, level="source", bisected=(), failure=failure)))
    assert "__getattribute__>" in text


def test_of_a_hang_the_title_says_that_it_does_not_end() -> None:
    case = a_case(bisect=None, repro="import torch\nwhile True: ...\n")
    assert case.minify is not None
    hang = FailureDocument("hang", "timeout", "did not end in time", None, None)
    text = issue_text(replace(case, minify=replace(case.minify, level="source", bisected=(), failure=hang)))
    assert "`it does not end`" in text.splitlines()[0]
    assert "?q=is%3Aissue+hang+" in text


def test_what_the_program_itself_defines_is_not_searched_for() -> None:
    pass_ = "import torch\ndef fold(graph): ...\ntorch._inductor.config.post_grad_custom_pre_pass = fold\n"
    operator = 'import torch\n@torch.library.custom_op("shop::tile", mutates_args=())\ndef tile(x): ...\n'
    case = a_case(bisect=None)
    assert case.minify is not None
    failure = FailureDocument("wrong_result", "wrong_result", "output 0 differs in 1 of 4 elements", None, None)
    for repro, kind, name in ((pass_, "pass", "fold"), (operator, "operator", "shop.tile.default")):
        minify = replace(case.minify, bisected=(ReproCulpritDocument(kind, name, None),), failure=failure)
        assert "Search for" not in issue_text(replace(case, minify=minify, repro=repro))
        assert "Search for" in issue_text(replace(case, minify=minify, repro="import torch\ntorch.add(1, 2)\n"))


def test_an_error_that_compiled_code_does_not_raise_is_searched_for_by_its_words() -> None:
    case = a_case()
    assert case.minify is not None
    told = "GraphModule: uncompiled raises RuntimeError, compiled does not: mat1 and mat2 must agree, but got Half"
    failure = FailureDocument("wrong_result", "wrong_result", told, None, None)
    text = issue_text(replace(case, minify=replace(case.minify, failure=failure)))
    assert "?q=is%3Aissue+and+must+agree+but+got+Half+torch.compile>" in text
    told = "uncompiled raises NotImplementedError, compiled does not: \"round_cpu\" not implemented for 'Char'"
    bisected = (ReproCulpritDocument("decomposition", "aten.round.decimals", None),)
    few = replace(case.minify, failure=replace(failure, message=told), bisected=bisected)
    text = issue_text(replace(case, bisect=None, minify=few, repro="import torch\ntorch.round(1)\n"))
    assert "?q=is%3Aissue+not+implemented+for+round+torch.compile>" in text


def test_what_a_compiler_refuses_is_told_and_searched_for_by_its_first_error() -> None:
    diagnostic = "error: conflicting declaration \u2018auto tmp\u2019"
    raised = f"CppCompileError: C++ compile error\n\nOutput:\na.cpp:1:2: {diagnostic}\n"
    case = a_case()
    assert case.minify is not None
    failure = FailureDocument(
        "exception", "torch._inductor.exc.InductorError", raised, "torch/cpp_builder.py:1 in f", None
    )
    text = issue_text(replace(case, bisect=None, minify=replace(case.minify, failure=failure)))
    assert f"`CppCompileError: {diagnostic}`" in text.splitlines()[0]
    assert "?q=is%3Aissue+conflicting+declaration+cpp_builder.py+torch.compile>" in text


def test_an_exit_code_is_told_once_and_no_word_to_search_for() -> None:
    case = a_case(bisect=None, repro="import torch\ndef f(x):\n    x.seen.append(1)\n    return torch.add(x, 1)\n")
    assert case.minify is not None
    for message, title in (("exit code 3", ""), ("exit code 3: too few", ": too few")):
        failure = FailureDocument("exit", "3", message, None, None)
        text = issue_text(replace(case, minify=replace(case.minify, failure=failure, level="source")))
        assert text.startswith(f"# torch.compile with backend `inductor`: `exit code 3{title}`\n")
        assert "+in%3Atitle+add>" in text


def test_an_error_of_the_first_rung_that_is_another_than_the_programs_is_told_of_the_repro() -> None:
    there = FailureDocument("exception", "RuntimeError", "view size is not compatible", "torch/_ops.py:8 in f", None)
    case = a_case(shown=there)
    assert case.minify is not None
    own = replace(there, type="AssertionError", message="expected size 4==4", where="torch/_inductor/output_code.py:7")
    text = issue_text(replace(case, minify=replace(case.minify, failure=own, rung="aot_eager")))
    assert "with backend `aot_eager`: `RuntimeError: view size is not compatible`" in text.splitlines()[0]
    assert "Compiled, it raises `AssertionError: expected size 4==4` in `torch/_inductor/output_code.py:7`. " in text
    assert (
        'Compiled with `backend="aot_eager"` (Dynamo and AOTAutograd), the repro below raises '
        "`RuntimeError: view size is not compatible` in `torch/_ops.py:8 in f`. Uncompiled it passes." in text
    )


def test_an_exception_is_told_as_the_proved_repro_raises_it() -> None:
    shown = FailureDocument("exception", "RuntimeError", "changed: [torch.FloatTensor [1, 1]]", None, None)
    case = a_case(shown=shown)
    assert case.minify is not None
    for type_, told in (("RuntimeError", "[1, 1]"), ("ValueError", "[2, 6]")):
        failure = replace(shown, type=type_, message="changed: [torch.FloatTensor [2, 6]]")
        text = issue_text(replace(case, minify=replace(case.minify, failure=failure)))
        assert f"`{type_}: changed: [torch.FloatTensor {told}]`" in text.splitlines()[0]
        subject = "the repro below" if told == "[1, 1]" else "it"
        assert f"{subject} raises `{type_}: changed: [torch.FloatTensor {told}]`." in text
    failure = replace(shown, message=f"{shown.message}\nfrom user code:\n  train.py")
    text = issue_text(replace(case, minify=replace(case.minify, failure=failure)))
    assert "it raises `RuntimeError: changed" in text
    reduced = replace(shown, message="\n  target: aten.erf.default")
    failure = replace(shown, message="no erf today")
    text = issue_text(replace(case, shown=reduced, minify=replace(case.minify, failure=failure)))
    assert "`RuntimeError: no erf today`" in text.splitlines()[0]


def test_its_title_has_the_culprit_of_the_repro_where_bisect_was_stopped() -> None:
    case = a_case()
    assert case.minify is not None
    assert case.bisect is not None
    found = ReproCulpritDocument("lowering", "tanh", "inference")
    minified = replace(case.minify, bisected=(found,))
    text = issue_text(replace(case, minify=minified, bisect=replace(case.bisect, culprits=(), verdict="stopped")))
    assert text.splitlines()[0].endswith("at fault: lowering `tanh`")


def test_of_several_culprits_it_says_which_the_repro_shows() -> None:
    case = a_case()
    assert case.minify is not None
    assert case.bisect is not None
    minified = replace(case.minify, bisected=(ReproCulpritDocument("lowering", "tanh", "forward"),))
    more = replace(case.bisect, culprits=case.bisect.culprits * 2)
    said = "Of the 2 that are at fault in the program, it shows lowering `tanh`."
    assert said in issue_text(replace(case, minify=minified, bisect=more))
    assert "Of the" not in issue_text(replace(case, minify=minified))


def test_a_comparison_that_fails_by_rounding_is_told_as_that() -> None:
    note = "output 0 differs; rounding, by a float64 run"
    found = replace(a_case().bisect, verdict="passes", failure=None, culprits=(), notes=(note,))  # type: ignore[type-var]
    text = issue_text(a_case(bisect=found, minify=None, repro="", accuracy=True))
    assert text.startswith("# torch.compile: no failure\n")
    assert "No compiled call gives a wrong result." in text
    assert "The program does not fail." not in text
    assert text.count(note) == 1
    minify = a_case().minify
    assert minify is not None
    failing = issue_text(a_case(bisect=None, minify=replace(minify, notes=(note,))))
    assert f"Uncompiled it passes.\n\n`{note}`\n" in failing  # which a maintainer asks first
    assert failing.count(note) == 1


def test_an_assertion_that_only_rounding_breaks_is_told_as_that_first() -> None:
    note = "output 0 differs in 1 of 30 elements, by up to 6.1e-05; rounding, by a float64 run"
    failure = FailureDocument("exception", "AssertionError", "tensor(0.0020)", None, None)
    minify = a_case().minify
    assert minify is not None
    text = issue_text(a_case(bisect=None, minify=replace(minify, failure=failure, notes=(note,))))
    assert (
        f"bug\n\nBy a float64 run what differs is rounding, and the program's assertion allows none:\n\n`{note}`"
        in text
    )
    assert text.count(note) == 1


def test_what_the_program_replaces_in_torch_is_told_first() -> None:
    patched = "import torch\n\ntorch._inductor.lowering.relu = print\n"
    text = issue_text(a_case(repro=patched))
    assert "bug\n\nThe program replaces parts of torch: `torch._inductor.lowering.relu`." in text
    assert "replaces" not in issue_text(a_case())
    assert "replaces" not in issue_text(a_case(repro=patched, redacted=True))


def test_a_long_log_keeps_its_first_lines_and_its_last() -> None:
    text = issue_text(a_case(repro_output="\n".join(f"<{number}>" for number in range(100))))
    assert all(f"<{number}>\n" in text for number in (0, 14, 35, 99))
    assert "<14>\n(20 lines left out)\n<35>" in text


def test_of_an_operator_no_graph_is_told_where_none_is_known() -> None:
    minify = a_case().minify
    assert minify is not None
    for graph, header in ((None, "| at fault in the repro | name |\n"), ("joint", "| name | graph |\n")):
        bisected = (ReproCulpritDocument("operator", "tiny.route", graph),)
        assert header in issue_text(a_case(bisect=None, minify=replace(minify, bisected=bisected)))


def test_an_operator_of_the_programs_is_told_as_no_fault_of_torch() -> None:
    case = a_case()
    assert case.bisect is not None
    culprit = msgspec.structs.replace(case.bisect.culprits[0], kind="operator", name="tiny.route.default")
    text = issue_text(replace(case, bisect=replace(case.bisect, culprits=(culprit,))))
    assert "registers, and not torch: `tiny.route.default`." in text


def test_the_command_of_a_compiler_has_no_folder_of_yours() -> None:
    said = "g++ a.cpp -I/home/alice/include/python3.11 -L/home/alice/site-packages/torch/lib -o /home/alice/a.so"
    text = issue_text(a_case(repro_output=said))
    assert "alice" not in text
    assert "-Ltorch/lib -o a.so" in text


def test_a_link_stays_whole() -> None:
    link = "https://pytorch.org/docs/stable/library.html"
    text = issue_text(a_case(repro_output=f"see {link} or file:///home/alice/a.html"))
    assert link in text
    assert "alice" not in text


def test_a_minify_that_was_interrupted_tells_its_trials() -> None:
    made = replace(a_case().minify, trials=7, proved=False)  # type: ignore[type-var]
    assert "minify: 7 trials" in issue_text(a_case(minify=made))


def test_where_no_repro_is_proved_the_program_itself_stands_there() -> None:
    made = replace(a_case().minify, proved=False, proof=("in a fresh process it passes",))  # type: ignore[type-var]
    case = a_case(minify=made, repro="import torch\n# a blob\n", program="import torch\n# the program\n")
    text = issue_text(case)
    assert "#### Program\n\n```python\nimport torch\n# the program\n```" in text
    assert "is not proved to fail in the same way: `in a fresh process it passes`. So this is the program" in text
    assert "a blob" not in text
    large = issue_text(replace(case, program="import torch\n" * 9_000))
    assert "#### Program\n\nIt is in the file of `train.py --lr 1`." in large


def test_an_issue_of_minify_alone_has_the_same_form() -> None:
    case = a_case()
    assert case.minify is not None
    found = ReproCulpritDocument("lowering", "tanh", "backward")
    text = issue_text(replace(case, bisect=None, minify=replace(case.minify, bisected=(found,))))
    assert text.startswith("# torch.compile with backend `inductor`: `relu: relu`, at fault: lowering `tanh`\n")
    assert 'Compiled with `backend="inductor"`, it raises `relu: relu`' in text
    assert "| lowering | `tanh` | backward |" in text
    assert commands(text)[0] == "python repro.py"
    assert "With the repro as `repro.py`:" in text


def test_an_issue_does_not_rest_on_a_repro_that_is_not_proved() -> None:
    made = replace(a_case().minify, proved=False)  # type: ignore[type-var]
    text = issue_text(a_case(minify=made, output="the program", repro_output="the repro"))
    assert commands(text)[0] == "python train.py --lr 1"
    assert "In the folder in which the program was run" in text
    assert "the program" in text.partition("### Error logs")[2]
    assert "the repro" not in text.partition("### Error logs")[2]


def test_its_commands_are_for_the_repro_or_else_for_the_program() -> None:
    assert commands(issue_text(a_case())) == [
        "python repro.py",
        "TORCHDYNAMO_DISABLE=1 python repro.py",
        "dynadiag bisect repro.py",
    ]
    no_repro = a_case(repro="", minify=None, accuracy=True)
    assert commands(issue_text(no_repro))[::2] == [
        "python train.py --lr 1",
        "dynadiag bisect --accuracy train.py --lr 1",
    ]
    function = a_case(repro="", minify=None, is_function=True, command="train.py:make")
    assert commands(issue_text(function)) == ["dynadiag bisect train.py:make"]


@pytest.mark.parametrize("verdict", ["passes", "fails_uncompiled", "flaky", "stopped"])
def test_it_says_what_there_is_of_any_verdict(verdict: str) -> None:
    bisect = replace(a_case().bisect, verdict=verdict, failure=None, culprits=(), rungs={})  # type: ignore[type-var]
    text = issue_text(a_case(bisect=bisect, minify=None, repro=""))
    assert "#### Bisection" not in text
    assert "### Versions" in text


def test_backends_that_were_not_run_are_no_bisection() -> None:
    bisect = replace(a_case().bisect, rungs={"eager": "not_run", "triton": "not_run"})  # type: ignore[type-var]
    assert "#### Bisection" not in issue_text(a_case(bisect=bisect))
    assert "not_run" not in issue_text(a_case())


def test_with_nothing_at_all_it_says_why() -> None:
    parts = (PartDocument("bisect", "interrupted", "Ctrl-C", 1.0, ()),)
    text = issue_text(TriagedCase(None, None, None, parts, "PyTorch version: 2.13.0"))
    assert "The program was not bisected" in text
    assert "- bisect: interrupted: `Ctrl-C`" in text


def test_hostile_text_stays_text() -> None:
    case = a_case(HOSTILE)
    for text in (issue_text(case), issue_text(replace(case, bisect=None)), issue_text(replace(case, repro=""))):
        assert_no_control(text)
        assert_no_workflow_command(text)
        left = outside_code(text)
        for sign in ("<img", "<!--", "](", "@maintainer", "approve", "# Heading"):
            assert sign not in left, left
            assert sign in text or sign == "<!--"


def test_a_repro_that_would_command_a_runner_is_named_and_not_shown() -> None:
    text = issue_text(a_case(repro='x = """\n::error::pwned\n"""\n'))
    assert "::error" not in text
    assert "It is in the file `repro.py`" in text


def test_redacted_it_has_nothing_of_the_program() -> None:
    case = a_case(" ".join(SECRETS))
    assert case.bisect is not None
    assert case.minify is not None
    bisect, minify = redacted_bisect(case.bisect), redacted_minify(case.minify)
    parts = tuple(replace(each, reason="(left out)") for each in case.parts)
    hidden = replace(case, bisect=bisect, minify=minify, parts=parts, repro="", program="", output="", redacted=True)
    for text in (issue_text(hidden), encode(bisect).decode(), encode(minify).decode()):
        assert [secret for secret in SECRETS if secret in text] == []
    assert bisect.failure is not None
    assert bisect.failure.where == "torch/_inductor/lowering.py:3 in f"
    assert (bisect.rung, bisect.culprits[0].kind) == ("inductor", "lowering")


GRAPH_OF_ONE = "import torch\n\n\ndef f(x):\n    return torch.nanmean(x, 0)\n\n\nx = torch.empty(0)\n"
GRAPH_OF_TWO = GRAPH_OF_ONE.replace("(x, 0)", "(torch.ops.aten.expand.default(x, [2]), 0)")
GRAPH_OF_MORE = GRAPH_OF_ONE.replace("(x, 0)", "(x.abs() + x.exp(), 0)")
ONE_ROW = ComparedDocument("torch.compile(f)(x)", (ValueRow("", "nan", "0"),), 1, 1)
EMPTY = NeighbourDocument("size", "torch.empty(0)", "torch.empty(2)", "pass")
KEEPS = NeighbourDocument("argument", "keepdim=True", "keepdim=False", "pass")
HALF = NeighbourDocument("dtype", "torch.float16", "torch.float32", "same")


def test_a_title_names_no_backend_where_nothing_need_be_compiled() -> None:
    case = a_case()
    assert case.bisect is not None
    bisect = replace(case.bisect, verdict="fails_uncompiled", rung="uncompiled", culprits=())
    title = issue_text(replace(case, bisect=bisect, minify=None)).splitlines()[0]
    assert title == "# torch.compile: `relu: relu`"


def a_wrong_graph(repro: str, message: str = "output 0 differs in 1 of 1 elements", **values: object) -> TriagedCase:
    case = a_case(repro=repro)
    assert case.minify is not None
    failure = FailureDocument("wrong_result", "wrong_result", f"GraphModule: {message}", None, None)
    return replace(case, minify=replace(case.minify, failure=failure, **values))  # type: ignore[arg-type]  # of a test


@pytest.mark.parametrize(
    ("repro", "values", "title"),
    [
        (
            GRAPH_OF_ONE,
            {"compared": ONE_ROW, "neighbours": (KEEPS, HALF, EMPTY)},
            "`torch.nanmean` of an empty tensor with `keepdim=True` gives `0` instead of `nan`",
        ),
        (GRAPH_OF_TWO, {"compared": ONE_ROW}, "`torch.nanmean` after `aten.expand` gives `0` instead of `nan`"),
        (GRAPH_OF_ONE, {}, "`torch.nanmean` gives a wrong result: `output 0 differs in 1 of 1 elements`"),
        (
            GRAPH_OF_ONE,
            {"compared": replace(ONE_ROW, rows=(ValueRow("[0].dtype", "torch.int8", "torch.int64"),))},
            "`torch.nanmean` gives dtype `torch.int64` instead of `torch.int8`",
        ),
        (
            GRAPH_OF_ONE,
            {"compared": replace(ONE_ROW, rows=(*ONE_ROW.rows, ValueRow("[1]", "1", "2")))},  # no one pair of values
            "`torch.nanmean` gives a wrong result: `output 0 differs in 1 of 1 elements`",
        ),
        (
            GRAPH_OF_ONE,
            {"message": "uncompiled raises ValueError, compiled does not: no rows"},
            "`torch.nanmean` does not raise `ValueError: no rows`",
        ),
        (
            GRAPH_OF_ONE,
            {"neighbours": (NeighbourDocument("layout", "x.t()", "x.t().contiguous()", "pass"),)},
            "`torch.nanmean` of a tensor that is not contiguous gives a wrong result: "
            "`output 0 differs in 1 of 1 elements`",
        ),
        (
            GRAPH_OF_MORE,
            {"compared": ONE_ROW, "culprit": "nanmean"},
            "`torch.nanmean` gives `0` instead of `nan`",
        ),
        (
            GRAPH_OF_ONE,
            {
                "message": "gradient of input 'self.scale' differs in 8 of 8 elements",
                "compared": replace(ONE_ROW, rows=(ValueRow("[0]", "tensor([1.])", "None"),)),
            },
            "`torch.nanmean` gives no gradient",
        ),
        (
            GRAPH_OF_ONE,
            {"message": "gradient of input 'self.scale' differs in 8 of 8 elements"},
            "`torch.nanmean` gives a wrong gradient",
        ),
        (
            GRAPH_OF_ONE.replace("torch.nanmean(x, 0)", "x @ x * 2"),
            {"compared": ONE_ROW},
            "mul after matmul gives `0` instead of `nan`",
        ),
        (
            GRAPH_OF_MORE,  # the result is not that of exp
            {"compared": ONE_ROW, "culprit": "exp"},
            "`Tensor.exp` leads to `0` instead of `nan`",
        ),
        (
            GRAPH_OF_MORE,
            {"culprit": "exp"},
            "`Tensor.exp` leads to a wrong result: `output 0 differs in 1 of 1 elements`",
        ),
    ],
)
def test_a_title_names_the_function_what_it_needs_and_both_values(
    repro: str, values: dict[str, object], title: str
) -> None:
    culprit = values.pop("culprit", None)
    case = a_wrong_graph(repro, **values)  # type: ignore[arg-type]  # of a test
    assert case.bisect is not None
    if culprit is not None:
        named = msgspec.structs.replace(case.bisect.culprits[0], name=culprit)
        case = replace(case, bisect=replace(case.bisect, culprits=(named,)))
    assert issue_text(case).splitlines()[0] == f"# {title} under torch.compile (inductor, CPU)"


@pytest.mark.parametrize(
    ("repro", "values"),
    [
        (GRAPH_OF_MORE, {}),  # `+` or `abs` may be at fault
        (GRAPH_OF_MORE, {"bisected": (ReproCulpritDocument("fusion", "nanmean+add", None),)}),
        (GRAPH_OF_MORE, {"bisected": tuple(ReproCulpritDocument("lowering", name, None) for name in ("nanmean", "x"))}),
        (GRAPH_OF_ONE, {"level": "source"}),  # a statement that only makes a graph
        (GRAPH_OF_ONE, {"proved": False}),
        (GRAPH_OF_ONE, {"bisected": (ReproCulpritDocument("operator", "tiny.route.default", None),)}),  # the program's
        (f"{GRAPH_OF_ONE}torch._inductor.lowering.relu = print\n", {}),  # no fault of torch
    ],
)
def test_a_title_names_no_function_that_may_not_be_at_fault(repro: str, values: dict[str, object]) -> None:
    case = a_wrong_graph(repro, neighbours=(KEEPS,), **values)  # type: ignore[arg-type]  # of a test
    first = issue_text(replace(case, bisect=None) if "bisected" in values else case).splitlines()[0]
    assert "`torch.nanmean`" not in first
    assert ("with `keepdim=True`" in first) is ("proved" not in values)


def test_a_pass_or_a_backend_of_the_program_is_told_as_its_own() -> None:
    repro = f"def fold(graph): ...\n{GRAPH_OF_ONE}"
    for name, own in (("fold", True), ("remove_noop_ops", False)):
        case = a_wrong_graph(repro, bisected=(ReproCulpritDocument("pass", name, None),))
        text = issue_text(replace(case, bisect=None))
        assert ("At fault is a pass of the program's own, and not torch: `fold`." in text) is own
        assert ("`torch.nanmean`" in text.splitlines()[0]) is not own
    text = issue_text(a_wrong_graph(GRAPH_OF_ONE, rung="custom"))
    assert "It fails with the program's own backend, and passes with those of torch." in text
    assert "`torch.nanmean`" not in text.splitlines()[0]


def test_a_title_of_reduced_source_has_what_is_compared_and_both_values() -> None:
    case = a_wrong_graph(GRAPH_OF_ONE, compared=ONE_ROW, neighbours=(KEEPS,), level="source")
    first = issue_text(case).splitlines()[0]
    assert first == (
        "# torch.compile with backend `inductor`, with `keepdim=True`: `torch.compile(f)(x)` gives `0` instead of `nan`"
    )


def test_a_device_that_only_a_message_names_is_not_the_repros() -> None:
    for line, device in (("# no kernel for cuda\n", "CPU"), ("y = x.cuda()\n", "CUDA")):
        assert f"(inductor, {device})\n" in issue_text(a_wrong_graph(f"{line}{GRAPH_OF_ONE}"))


def test_both_values_and_the_options_that_matter_are_tables() -> None:
    text = issue_text(
        a_wrong_graph(GRAPH_OF_ONE, compared=replace(ONE_ROW, apart=3, total=9), neighbours=(KEEPS, HALF))
    )
    said = "What `torch.compile(f)(x)` gives in the repro below, uncompiled and compiled, where they differ most:\n"
    assert said in text
    assert "| uncompiled | compiled |\n| --- | --- |\n| `nan` | `0` |\n" in text
    assert "| `keepdim=True` | `keepdim=False` | passes |\n| `torch.float16` | `torch.float32` | fails |\n" in text
    unproved = issue_text(a_wrong_graph(GRAPH_OF_ONE, compared=ONE_ROW, neighbours=(KEEPS,), proved=False))
    assert "keepdim" not in unproved
    assert "uncompiled and compiled" not in unproved


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("pass", "Without that it passes: it is no fault of torch."),
        ("same", "Without that it fails too."),
        (None, "It is no fault of torch if it passes without that."),
    ],
)
def test_whether_it_fails_without_a_change_of_torch_is_told(status: str | None, said: str) -> None:
    line = "torch._inductor.lowering.relu = print"
    tried = (NeighbourDocument("setting", line, "", status),) if status else ()
    text = issue_text(a_wrong_graph(f"{GRAPH_OF_ONE}{line}\n", neighbours=tried))
    assert f"The program replaces parts of torch: `torch._inductor.lowering.relu`. {said}" in text


def test_the_lines_of_the_program_stand_beside_a_graph_that_nobody_writes(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("def relu(x):\ny = x.relu()\n@torch.compile\ndef forward(self):\n")
    case = a_case()
    assert case.bisect is not None
    culprit = msgspec.structs.replace(case.bisect.culprits[0], file=str(file), line=2)
    frame = msgspec.structs.replace(culprit, kind="frame", line=1)
    decorated = msgspec.structs.replace(culprit, kind="frame", name="forward", line=3)
    found = replace(case.bisect, culprits=(culprit, culprit, frame, decorated))
    lines = ("train.py:2: y = x.relu()", "train.py:1: def relu(x):", "train.py:3: def forward(...)")
    assert lines_at_fault(found) == lines
    found = replace(case.bisect, culprits=(culprit, culprit))
    assert lines_at_fault(case.bisect) == ()  # a file that is not there
    text = issue_text(replace(case, own_lines=lines_at_fault(found)))
    assert " In the program it is `train.py:2: y = x.relu()`.\n" in text


def test_a_tolerance_stands_in_the_repro_alone() -> None:
    told = "output 0 differs in 1 of 1 elements (rtol 1e-06, atol 0); by float64"
    text = issue_text(a_wrong_graph(GRAPH_OF_ONE, told, notes=(f"with --accuracy: f: {told}",)))
    assert "rtol" not in text
    assert "`output 0 differs in 1 of 1 elements; by float64`" in text


@pytest.mark.parametrize(
    ("name", "words"), [("relu", "in%3Atitle+relu"), ("add_", "in%3Atitle+add_"), ("max_pool2d", "max_pool2d")]
)
def test_a_wrong_result_is_searched_for_by_its_labels_and_a_plain_word_in_titles(name: str, words: str) -> None:
    case = a_wrong_graph(f"import torch\ntorch.{name}()\n")
    assert case.minify is not None
    minify = replace(case.minify, bisected=(ReproCulpritDocument("lowering", name, None),))
    text = issue_text(replace(case, bisect=None, minify=minify))
    labels = "label%3A%22oncall%3A+pt2%22%2C%22module%3A+inductor%22"
    assert f"?q=is%3Aissue+{labels}+{words}>" in text
    for rung, module in (("eager", "dynamo"), ("aot_eager", "pt2-dispatcher")):
        text = issue_text(replace(case, bisect=None, minify=replace(minify, rung=rung)))
        assert f"?q=is%3Aissue+{labels.replace('inductor', module)}+{words}>" in text


def test_of_several_culprits_two_are_in_the_title_and_none_is_searched_for() -> None:
    names = ("mul", "sub", "copy")
    for many, said in ((2, "at fault: lowering `mul` and lowering `sub`"), (3, "")):
        parts = tuple(ReproCulpritDocument("lowering", name, None) for name in names[:many])
        repro = "import torch\ndef g(x):\n    return torch.roll(x.mul(2).sub(1).copy(), 1)\n"
        text = issue_text(replace(a_wrong_graph(repro, bisected=parts), bisect=None))
        assert text.splitlines()[0].endswith(said or "elements`")
        assert "+in%3Atitle+roll>" in text


def test_what_is_not_finite_is_searched_for_as_other_wrong_results() -> None:
    case = a_wrong_graph("import torch\ntorch.relu()\n", bisected=(ReproCulpritDocument("lowering", "relu", None),))
    assert case.minify is not None
    failure = FailureDocument("nan", "nan", "GraphModule: output 0 differs", None, None)
    text = issue_text(replace(case, bisect=None, minify=replace(case.minify, failure=failure)))
    assert "+in%3Atitle+relu>" in text


def test_a_kernel_of_several_operators_is_searched_for_by_what_the_repro_calls() -> None:
    part = ReproCulpritDocument("kernel", "view+amax+amin", None)
    repro = "import torch\ndef g(x):\n    return x.amin(1)\n"
    text = issue_text(replace(a_wrong_graph(repro, bisected=(part,)), bisect=None))
    assert "+in%3Atitle+amin>" in text


def test_what_of_torch_decorates_a_function_is_searched_for_first() -> None:
    repro = (
        "import torch\n@torch.compiler.region\ndef g(x):\n    return torch.sin(x)\nassert torch.compile(g)(1) == 2\n"
    )
    text = issue_text(replace(a_wrong_graph(repro), bisect=None))
    assert "+in%3Atitle+region>" in text
