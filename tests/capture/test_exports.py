"""What the recorder sees of exports: their outcome, where they were called, and where they failed."""

from __future__ import annotations

import contextlib
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim, draft_export, export
from torch.utils import _pytree as pytree

import dynadiag
from dynadiag.capture.exports import describe_ending_failure
from dynadiag.explanation.explanation import explain
from dynadiag.explanation.exports import read_exports
from dynadiag.explanation.run_records import Export
from dynadiag.recording.torch_text.exports import read_export_failure
from dynadiag.torch_private.exports import listen_for_exports, stop_listening_for_exports


class Gate(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = x.abs().max().item()
        return x / scale if scale > 1.0 else x


class Counted(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        large = (x.abs() > 1).sum().item()
        return x / large if large > 1 else x


class Inner(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


def exports_of(file: Path, *calls: Any) -> tuple[Export, ...]:
    with dynadiag.record(file):
        for call in calls:
            try:
                call()
            except Exception:  # noqa: BLE001 - as a program that goes on
                continue
    with dynadiag.open(file) as recording:
        return read_exports(recording)


def line_of(function: Any, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(index for index, line in enumerate(lines) if text in line)


def test_each_export_has_its_outcome_although_the_program_goes_on(tmp_path: Path) -> None:
    x = torch.ones(3)
    found = exports_of(
        tmp_path / "run.dynadiag", lambda: export(Gate(), (x,)), lambda: export(Inner(), (x,)), lambda: Inner()(x)
    )
    assert [(each.id, each.function, each.strict, each.error) for each in found] == [
        ("export/0", "Gate.forward", False, "GuardOnDataDependentSymNode"),
        ("export/1", "Inner.forward", False, None),
    ]
    failed = found[0]
    assert (failed.condition, failed.symbols) == ("zuf0 > 1.0", ("zuf0",))
    assert failed.stack[-1].line == line_of(Gate, "scale > 1.0")
    assert failed.callers[-1].file == __file__


def test_a_strict_export_fails_at_the_line_that_was_traced(tmp_path: Path) -> None:
    (found,) = exports_of(tmp_path / "run.dynadiag", lambda: export(Gate(), (torch.ones(3),), strict=True))
    assert (found.strict, found.stack[-1].line) == (True, line_of(Gate, "scale > 1.0"))


def test_a_violated_constraint_has_its_own_type(tmp_path: Path) -> None:
    shapes = ({0: Dim("n")},)
    (found,) = exports_of(tmp_path / "run.dynadiag", lambda: export(Inner(), (torch.ones(1),), dynamic_shapes=shapes))
    assert (found.error, found.stack) == ("ConstraintViolationError", ())


def test_a_draft_has_what_it_assumed(tmp_path: Path) -> None:
    draft, assumed = exports_of(tmp_path / "run.dynadiag", lambda: draft_export(Counted(), (torch.ones(3) * 2,)))
    assert (draft.api, draft.error, draft.assumed) == ("torch.export.draft_export", None, None)
    assert (assumed.condition, assumed.assumed) == ("u0 > 1", "True")


@pytest.mark.parametrize("strict", [False, True])
def test_a_draft_that_returns_with_a_size_that_became_constant_has_not_failed(tmp_path: Path, strict: bool) -> None:
    class Positions(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.ones(16, 8)

    def drafts() -> torch.export.ExportedProgram:
        shapes = {"x": {0: Dim("batch"), 1: Dim("length")}}
        return draft_export(Positions(), (torch.ones(2, 16, 8),), dynamic_shapes=shapes, strict=strict)

    file = tmp_path / "run.dynadiag"
    with dynadiag.record(file):
        assert drafts().module()(torch.ones(3, 16, 8)).shape == (3, 16, 8)
        with contextlib.suppress(Exception):  # the program handles an exception itself, and drafts anew
            try:
                export(Gate(), (torch.ones(3),))
            finally:
                drafts()
    with dynadiag.open(file) as recording:
        explanation, exports = explain(recording), read_exports(recording)
    assert [each.error for each in exports if each.assumed is None] == [None, "GuardOnDataDependentSymNode", None]
    assert explanation.export_count == 3
    (found,) = (each for each in explanation.findings if each.rule == "assumed")
    assert found.span.line == line_of(Positions, "torch.ones(16")
    assert found.cause == "`length` is marked dynamic, but the code fixes it to 16"


def test_drafts_with_one_assumption_have_the_line_of_each(tmp_path: Path) -> None:
    def draft_two() -> None:
        draft_export(Counted(), (torch.ones(3) * 2,))
        draft_export(Counted(), (torch.ones(4) * 2,))

    file = tmp_path / "run.dynadiag"
    exports_of(file, draft_two)
    with dynadiag.open(file) as recording:
        (found,) = explain(recording).findings
    line = line_of(draft_two, "torch.ones(3)")
    assert [fact.span.line for fact in found.evidence if fact.label == "in" and fact.span] == [line, line + 1]


def test_a_draft_that_fails_in_torch_has_no_line_of_its_solver(tmp_path: Path) -> None:
    """torch 2.11 asserts that a number of a tensor with fractions is none ("Unknown symbol zuf0"), within sympy."""
    found = exports_of(tmp_path / "run.dynadiag", lambda: draft_export(Gate(), (torch.ones(3) * 2,)))
    assert found[0].error == ("AssertionError" if torch.__version__.startswith("2.11") else None)
    assert all(frame.file == __file__ for frame in found[0].stack)


def untraced(x: torch.Tensor) -> torch.Tensor:
    doubled: torch.Tensor = torch.ops.answers_drafting.twice(x + 1)
    return doubled.sum()


def test_what_a_draft_runs_on_the_example_has_the_line_of_the_operator(tmp_path: Path) -> None:
    class First(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return untraced(x)

    class Second(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return untraced(x) * 2

    with torch.library._scoped_library("answers_drafting", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CPU")
        x = torch.ones(3)
        found = exports_of(
            tmp_path / "run.dynadiag", lambda: draft_export(First(), (x,)), lambda: draft_export(Second(), (x,))
        )
    told = [(each.function.rpartition(".<locals>.")[2], each.stack[-1].line) for each in found if each.operator]
    line = line_of(untraced, "twice")
    assert told == [("First.forward", line), ("Second.forward", line)]


@pytest.mark.parametrize("strict", [False, True])
def test_a_module_of_torchs_that_cannot_be_exported_is_told_at_the_call(tmp_path: Path, strict: bool) -> None:
    """Frames of generated code ("<string>:1") stood for the program's line."""
    call = lambda: export(nn.Linear(4, 4), (torch.ones(3, 5),), strict=strict)  # noqa: E731 - one line
    file = tmp_path / "run.dynadiag"
    (found,) = exports_of(file, call)
    assert found.stack == ()
    with dynadiag.open(file) as recording:
        (finding,) = explain(recording).findings
    assert (finding.span.file, finding.span.line) == (__file__, call.__code__.co_firstlineno)
    assert "[3, 5] X [4, 4]" in (finding.cause or "")


def ending(call: Any) -> dict[str, Any]:
    """What is recorded of a call whose exception ends the program."""
    exports_heard: list[str | Exception] = []
    listen_for_exports(exports_heard.append)
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever it is, it ends the program
        return describe_ending_failure(error) or {}
    finally:
        stop_listening_for_exports(exports_heard.append)
    raise AssertionError("it does not fail")


def test_a_file_that_cannot_be_loaded_has_what_wrote_it(tmp_path: Path) -> None:
    program, weights, text = (str(tmp_path / name) for name in ("program.pt2", "weights.pt2", "text.pt2"))
    torch.export.save(export(Inner(), (torch.ones(3),)), program)
    torch.save(torch.ones(3), weights)
    Path(text).write_text("no archive")
    failures = [
        ending(lambda: torch._inductor.aoti_load_package(program)),
        ending(lambda: torch.export.load(weights)),
        ending(lambda: torch._inductor.aoti_load_package(text)),
        ending(lambda: torch.export.load(str(tmp_path / "missing.pt2"))),
    ]
    assert [(each["api"].rpartition(".")[2], each["contents"]) for each in failures] == [
        ("aoti_load_package", "torch.export.save"),
        ("load", "torch.save"),
        ("aoti_load_package", "no archive"),
        ("load", "nothing"),
    ]


def test_files_that_cannot_be_loaded_are_recorded_although_the_program_goes_on(tmp_path: Path) -> None:
    program, text, missing = (str(tmp_path / name) for name in ("program.pt2", "text.pt2", "missing.pt2"))
    torch.export.save(export(Inner(), (torch.ones(3),)), program)
    Path(text).write_text("no archive")
    found = exports_of(
        tmp_path / "run.dynadiag",
        lambda: torch._inductor.aoti_load_package(program),
        lambda: torch.export.load(text),
        lambda: torch.export.load(missing),  # a program may look so whether there is a file
        lambda: torch.export.load(program),
    )
    assert [(each.api.rpartition(".")[2], each.contents) for each in found] == [
        ("aoti_load_package", "torch.export.save"),
        ("load", "no archive"),
    ]
    assert all(each.callers[-1].file == __file__ for each in found)


@pytest.mark.filterwarnings("ignore:.isinstance.treespec:FutureWarning")  # of torch's copy of the graph
def test_packages_that_fail_are_recorded_each_for_itself(tmp_path: Path) -> None:
    """The second is made while the program handles the exception of the first."""
    program = export(Inner(), (torch.ones(3),))

    def package(text: str) -> None:
        def fails(_graph: Any) -> None:
            raise ValueError(text)

        torch._inductor.aoti_compile_and_package(program, inductor_configs={"post_grad_custom_post_pass": fails})

    def twice() -> None:
        try:
            package("the first")
        except Exception:  # noqa: BLE001 - as a program that tries another setting
            package("the second")

    found = exports_of(tmp_path / "run.dynadiag", twice)
    assert [(each.api.rpartition(".")[2], each.message.partition("\n")[0]) for each in found] == [
        ("aoti_compile_and_package", "ValueError: the first"),
        ("aoti_compile_and_package", "ValueError: the second"),
    ]
    assert found[0].stack[-1].line == line_of(test_packages_that_fail_are_recorded_each_for_itself, "raise ValueError")


def test_an_exception_that_is_recorded_on_its_way_and_at_the_end_is_one_failure(tmp_path: Path) -> None:
    call = {"api": "torch.export.load", "callers": [], "contents": "no archive", "outcome": "error"}
    with dynadiag.record(tmp_path / "run.dynadiag"):
        for error in ("RuntimeError", "BadZipFile"):
            torch._logging.trace_structured("dynadiag_export", lambda error=error: call | {"error": error})
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        assert [each.error for each in read_exports(recording)] == ["BadZipFile"]


def test_an_operator_that_is_not_registered_is_named_although_torch_only_logs_it(tmp_path: Path) -> None:
    file = str(tmp_path / "program.pt2")
    with torch.library._scoped_library("answers_loading", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        library.impl("twice", torch.empty_like, "Meta")

        class Calls(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                doubled: torch.Tensor = torch.ops.answers_loading.twice(x)
                return doubled

        torch.export.save(export(Calls(), (torch.ones(3),)), file)
    found = read_export_failure(ending(lambda: torch.export.load(file))["message"])
    assert (found.kind, found.name) == ("unregistered operator", "answers_loading::twice")


def test_a_class_that_has_no_name_in_a_file_ends_its_writing(tmp_path: Path) -> None:
    class Held:
        def __init__(self, value: torch.Tensor) -> None:
            self.value = value

    class Reads(nn.Module):
        def forward(self, x: torch.Tensor, held: Held) -> torch.Tensor:
            return x + held.value

    pytree.register_pytree_node(
        Held,
        lambda held: ([held.value], None),
        lambda values, _: Held(*values),
        flatten_with_keys_fn=lambda held: ([(pytree.GetAttrKey("value"), held.value)], None),
    )
    program = export(Reads(), (torch.ones(3), Held(torch.ones(3))))
    failed = ending(lambda: torch.export.save(program, tmp_path / "program.pt2"))
    found = read_export_failure(failed["message"])
    assert (failed["api"], found.kind, found.name) == ("torch.export.save", "unnamed class", "Held")


def test_symbols_of_an_export_are_told_apart_from_those_of_others(tmp_path: Path) -> None:
    file, x = tmp_path / "run.dynadiag", torch.ones(3)
    exports_of(file, lambda: export(Gate(), (x,)), lambda: export(Gate(), (x,)))
    with dynadiag.open(file) as recording:
        assert [each.compile_id for each in recording.symbols()] == ["export/0", "export/1"]


def test_dynamic_shapes_that_do_not_fit_are_written_as_they_must_be(tmp_path: Path) -> None:
    class Two(nn.Module):
        def forward(self, batch: Any, pair: Any, scale: float = 1.0) -> torch.Tensor:
            return (batch["a"] + pair[0] + pair[1]) * scale

    n, x = torch.export.Dim("n"), torch.ones(4, 3)
    given: list[Any] = [
        {"batch": {"a": {0: n}}},
        ({"a": {0: 2 * n}}, [{0: n}], None),
        ({"a": {0: n}}, [{0: n}, {2: n}], None),
        {"batch": {"a": (n, None)}, "pairs": None, "scale": None},
        ({"a": {"0": torch.export.Dim.AUTO}}, [{0: torch.export.Dim.AUTO}, None], None),
    ]
    found = exports_of(
        tmp_path / "run.dynadiag",
        *(
            lambda shapes=each: torch.export.export(Two(), ({"a": x}, [x, x], 2.0), dynamic_shapes=shapes)
            for each in given
        ),
    )
    assert [each.shapes for each in found] == [
        "{'batch': {'a': {0: n}}, 'pair': [None, None], 'scale': None}",
        "{'batch': {'a': {0: 2*n}}, 'pair': [{0: n}, None], 'scale': None}",
        "{'batch': {'a': {0: n}}, 'pair': [{0: n}, None], 'scale': None}",
        "{'batch': {'a': (n, None)}, 'pair': [None, None], 'scale': None}",
        "{'batch': {'a': None}, 'pair': [{0: Dim.AUTO}, None], 'scale': None}",
    ]
    assert [each.wrong_shape and each.wrong_shape.partition(",")[0] for each in found] == [
        *(None, None),
        "`dynamic_shapes['pair'][1]` names dimension 2",
        None,
        "`dynamic_shapes['batch']['a']` names dimension '0'",
    ]


def test_what_failed_for_another_reason_has_no_other_shapes(tmp_path: Path) -> None:
    shapes = ({0: torch.export.Dim("n")},)
    (found,) = exports_of(
        tmp_path / "run.dynadiag", lambda: torch.export.export(Gate(), (torch.ones(4),), dynamic_shapes=shapes)
    )
    assert (found.shapes, found.wrong_shape) == (None, None)


@pytest.mark.parametrize("strict", [False, True])
def test_what_makes_a_size_constant_has_the_operator_and_its_sizes(tmp_path: Path, strict: bool) -> None:
    class Adds(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x.relu() + y

    class Views(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x.view(4, -1) * y

    class Branches(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x * y if x.shape[0] == 4 else x

    told = []
    for kind in (Adds, Views, Branches):
        file, inputs = tmp_path / f"{kind.__name__}.dynadiag", (torch.ones(4, 3), torch.ones(1, 3))
        inputs = (inputs[0], torch.ones(4, 3)) if kind is Adds else inputs
        shapes = ({0: torch.export.Dim("n")}, None)
        exports_of(file, lambda: torch.export.export(kind(), inputs, dynamic_shapes=shapes, strict=strict))  # noqa: B023
        with dynadiag.open(file) as recording:
            (finding,) = explain(recording).findings
        told.append(next((each.text for each in finding.evidence if each.label == "operation"), None))
    name = "inputs[0].size()[0]" if strict else "x.size()[0]"
    assert told == [
        f"`aten.add.Tensor of ({name}, 3), (4, 3)`",
        f"`aten.view.default of ({name}, 3), [4, -1]`",
        None,
    ]


def test_a_range_is_python_and_says_that_it_begins_at_two(tmp_path: Path) -> None:
    class Halves(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[: x.shape[0] // 2] + x[x.shape[0] // 2 :]

    file, x = tmp_path / "run.dynadiag", torch.ones(8, 4)
    exports_of(file, lambda: export(Halves(), (x,), dynamic_shapes=({0: Dim("n")},)))
    with dynadiag.open(file) as recording:
        (finding,) = explain(recording).findings
    assert finding.advice[0].text == (
        "Write what the code holds for: `_n = Dim('_n', min=1)` and `n = 2*_n`. It begins at 2 all the same, and not "
        "at 1: torch exports no size of 1."
    )
    followed = export(Halves(), (x,), dynamic_shapes=({0: 2 * Dim("_n", min=1)},)).module()
    assert followed(torch.ones(6, 4)).shape == (3, 4)
    with pytest.raises(AssertionError, match=r"Guard failed"):
        followed(torch.ones(2, 4))


def test_what_no_range_can_say_is_told_with_it(tmp_path: Path) -> None:
    class Patches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cut, self.position = nn.Conv2d(1, 2, 4, 4), nn.Parameter(torch.zeros(1, 16, 2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.cut(x).flatten(2).transpose(1, 2) + self.position

    file, x = tmp_path / "run.dynadiag", torch.ones(2, 1, 16, 16)
    height, width = Dim("height", min=4, max=64), Dim("width", min=4, max=64)
    exports_of(file, lambda: export(Patches(), (x,), dynamic_shapes=({2: height, 3: width},)))
    with dynadiag.open(file) as recording:
        (finding,) = explain(recording).findings
    told = finding.advice[0].text
    assert "`height = Dim('height', min=8, max=64)`" in told
    assert "== 16`, of line" in told
    sizes = {2: Dim("height", min=8, max=64), 3: Dim("width", min=8, max=64)}
    followed = export(Patches(), (x,), dynamic_shapes=(sizes,)).module()
    with pytest.raises(AssertionError, match=r"Guard failed"):
        followed(torch.ones(2, 1, 32, 32))


def test_a_branch_that_the_example_decided_is_told(tmp_path: Path) -> None:
    class Short(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.shape[0] < 32 else x

    file = tmp_path / "run.dynadiag"
    exports_of(file, lambda: export(Short(), (torch.ones(8, 4),), dynamic_shapes=({0: Dim("n", max=512)},)))
    with dynadiag.open(file) as recording:
        (finding,) = explain(recording).findings
    assert str(finding.cause).endswith(": `x.size()[0]` is 8 in the example, which decides `x.shape[0] < 32`")
    assert "`x.clone()`" in finding.advice[1].text


def test_an_export_that_the_recording_ends_in_is_told(tmp_path: Path) -> None:
    class Interrupted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyboardInterrupt

    file = tmp_path / "run.dynadiag"
    with dynadiag.record(file):
        export(Inner(), (torch.ones(3),))
        with contextlib.suppress(KeyboardInterrupt):
            export(Interrupted(), (torch.ones(3),))
    with dynadiag.open(file) as recording:
        found, told = read_exports(recording), explain(recording).headline.sentence
    assert [(each.function.rpartition(".")[2], each.is_open) for each in found] == [
        ("forward", False),
        ("forward", True),
    ]
    assert told.endswith("Interrupted.forward was still being exported at the end of the recording.")


def test_the_function_that_is_replaced_comes_back(tmp_path: Path) -> None:
    from torch import _utils_internal
    from torch.export import _trace

    before = _utils_internal.log_export_usage
    exports_of(tmp_path / "run.dynadiag", lambda: export(Inner(), (torch.ones(3),)))
    assert _utils_internal.log_export_usage is before
    assert _trace.log_export_usage is before


def test_a_line_of_the_program_that_hashes_what_has_no_hash_is_not_the_result_of_the_module(tmp_path: Path) -> None:
    @dataclass
    class Kept:
        value: torch.Tensor

    class Looks(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1 if Kept(x) in set[Any]() else x

    file = tmp_path / "run.dynadiag"
    exports_of(file, lambda: export(Looks(), (torch.ones(3),)))
    with dynadiag.open(file) as recording:
        (found,) = explain(recording).findings
    assert (found.span.line, found.advice) == (line_of(Looks, "in set"), ())
    assert "unhashable type: " in (found.cause or "")
