"""Whose code a place is in."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from dynadiag.explanation.explanation import explain
from dynadiag.explanation.run_records import method_classes
from dynadiag.recording.code_origin import is_stdlib_file, is_torch_file, user_frame
from dynadiag.recording.records import Frame, Guard, Span
from dynadiag.render.json_document import document
from dynadiag.render.report import explanation_text
from tests.explanation.build import FILE, FakeRecording, a_break, records

OPTIMIZER = "/env/lib/python3.11/site-packages/torch/optim/optimizer.py"


def test_the_torch_that_is_installed_is_torchs() -> None:
    assert is_torch_file(torch.nn.modules.linear.__file__)


@pytest.mark.parametrize(
    "file", [FILE, "/home/user/torch/x.py", "/env/site-packages/torchvision/x.py", "<string>", "", None]
)
def test_what_else_there_is_is_not(file: str | None) -> None:
    assert not is_torch_file(file)


def test_the_way_in_is_the_last_line_outside_torch() -> None:
    frames = (Frame(FILE, 9, "<module>"), Frame(FILE, 4, "step"), Frame(OPTIMIZER, 79, "_use_grad"))
    assert user_frame(a_break(user_stack=frames)) == frames[1]
    assert user_frame(a_break(user_stack=frames[2:])) is None


def test_pythons_own_library_is_told_from_what_is_installed_into_it() -> None:
    assert is_stdlib_file(copy.__file__)
    assert is_stdlib_file("<frozen runpy>")
    for file in (FILE, OPTIMIZER, pytest.__file__, "/home/user/lib/tools/copy.py", None):
        assert not is_stdlib_file(file)


def test_the_way_in_to_pythons_library_is_the_users_line() -> None:
    frames = (Frame(FILE, 4, "f"), Frame(copy.__file__, 153, "deepcopy"))
    item = a_break(span=Span(copy.__file__, 153), user_stack=frames)
    assert user_frame(item) == frames[0]
    made = explain(FakeRecording(break_records=(item,)))
    (told,) = document(made).breaks
    assert told.called_at == frames[0]
    assert "Python's own library: what you can change" in explanation_text(made)
    assert document(explain(FakeRecording(break_records=(a_break(),)))).breaks[0].called_at is None


def type_guard(source: str, class_: str, compile_id: str = "0/0") -> Guard:
    expression = f"___check_type_id({source}, 94837401033328), type=<class '{class_}'>"
    return Guard(0, compile_id, "TYPE_MATCH", source, expression, FILE, 3)


def test_the_module_is_named_by_the_guard_on_its_type() -> None:
    guards = (
        type_guard("L['kwargs']", "dict"),
        type_guard("L['self']", "transformers.models.bert.modeling_bert.BertModel"),
        replace(type_guard("L['args'][0]", "torch.optim.adam.Adam", "1/0"), kind="ID_MATCH"),
        type_guard("L['args'][0]", "int", "2/0"),
        type_guard("L['x']", "lib.Config", "3/0"),
    )
    assert method_classes(guards) == {"0/0": "BertModel", "1/0": "Adam"}


def test_a_decorators_inner_function_is_named_with_the_module_it_is_of() -> None:
    made = records(modules=method_classes((type_guard("L['self']", "lib.BertModel"),)))
    assert made.named("wraps.<locals>.wrapper", ["0/1", "0/0"]) == "wraps.<locals>.wrapper (of BertModel)"
    assert made.named("wraps.<locals>.wrapper", ["5/0"]) == "wraps.<locals>.wrapper"
    assert made.named("BertModel.forward", ["0/0"]) == "BertModel.forward"
