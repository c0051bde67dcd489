"""The change of each kernel, on kernels made by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dynadiag.kernels.cost import RooflineCost
from dynadiag.kernels.generated_module import KernelCall
from dynadiag.kernels.graph_parser import SourceLine
from dynadiag.kernels.kernel_diff import KernelChange, change_diff, changed_kernels, compare_kernels
from dynadiag.kernels.module_parser import KernelDefinition


def _kernel(name: str, nodes: str, source: str | None = None, stage: str = "forward") -> KernelCall:
    text = source or f"computes {nodes}"
    definition = KernelDefinition(name, "cpp", 1, 2, 3, f"{name}\n{text}\n", (), (), None)
    return KernelCall(
        index=0,
        compile_id="0/0",
        stage=stage,
        event=0,
        name=name,
        language="cpp",
        call_number=1,
        line=9,
        text=f"{name}(buf0)",
        definition=definition,
        nodes=tuple(nodes.split()),
        views=(),
        ops=(),
        operator_lines=(),
        dynamo_nodes=(),
        source_lines=(),
        view_lines=(),
        evidence="scheduler",
        grid=None,
        cost=RooflineCost(),
        device="cpu",
        cache=None,
        partition=None,
        fallback=None,
    )


def _kinds(before: list[KernelCall], after: list[KernelCall]) -> list[tuple[str, list[str], list[str]]]:
    return _names(compare_kernels(before, after))


def _names(changes: Iterable[KernelChange]) -> list[tuple[str, list[str], list[str]]]:
    return [
        (change.kind, [call.name for call in change.before], [call.name for call in change.after]) for change in changes
    ]


def test_a_kernel_under_another_name_is_the_same() -> None:
    assert _kinds([_kernel("a_0", "sin", "x")], [_kernel("a_7", "sin", "x")]) == [("same", ["a_0"], ["a_7"])]


def test_a_kernel_of_another_stage_is_not() -> None:
    kinds = _kinds([_kernel("a", "sin")], [_kernel("a", "sin", stage="backward")])
    assert kinds == [("went", ["a"], []), ("appeared", [], ["a"])]


def test_changed() -> None:
    assert _kinds([_kernel("a", "sin add")], [_kernel("b", "sin mul")]) == [("changed", ["a"], ["b"])]


def test_split_and_merged() -> None:
    whole, parts = _kernel("ab", "sin add mul sum"), [_kernel("a", "sin add"), _kernel("b", "mul sum")]
    assert _kinds([whole], parts) == [("split", ["ab"], ["a", "b"])]
    assert _kinds(parts, [whole]) == [("merged", ["a", "b"], ["ab"])]


def test_of_two_that_are_the_same_one_may_go() -> None:
    same = [_kernel("a", "sin", "x"), _kernel("b", "cos", "x")]
    assert _kinds(same, same[:1]) == [("went", ["b"], []), ("same", ["a"], ["a"])]


def test_a_diff_leaves_the_names_out() -> None:
    (change,) = compare_kernels([_kernel("a", "sin", "x\ny")], [_kernel("b", "sin", "x\nz")])
    changed = [line for line in change_diff(change).splitlines()[2:] if line[0] in "+-"]
    assert changed == ["-y", "+z"]


def test_a_kernel_that_moved_to_another_compile_is_no_change() -> None:
    first, second = _kernel("a", "sin", "x"), _kernel("b", "cos", "y")
    assert _names(changed_kernels([([first, second], [first]), ([], [second])])) == []


def test_like_kernels_of_two_compiles_are_two_changes() -> None:
    old, new = _kernel("a", "sin add"), _kernel("b", "sin mul")
    assert _names(changed_kernels([([old], [new]), ([old], [new])])) == [("changed", ["a"], ["b"])] * 2


def test_a_kernel_without_a_partner_in_any_compile_went_or_is_new() -> None:
    changes = changed_kernels([([_kernel("a", "sin")], []), ([], [_kernel("b", "cos")])])
    assert _names(changes) == [("went", ["a"], []), ("appeared", [], ["b"])]


def test_other_operators_of_one_line_are_one_change_in_any_folder() -> None:
    old, new = (
        replace(
            _kernel(name, operator),
            operator_lines=((operator, "return layer(x)"),),
            source_lines=(SourceLine(f"/{name}/model.py", 15),),
        )
        for name, operator in (("a", "gelu"), ("b", "relu"))
    )
    assert _kinds([old], [new]) == [("changed", ["a"], ["b"])]
