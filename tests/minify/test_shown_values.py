"""Where two values differ, as a trial reports it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dynadiag.minify.follow_up import ValuesCompared
from dynadiag.minify.shown_values import show_values
from dynadiag.trial.context import TRIAL


def reported(monkeypatch: pytest.MonkeyPatch, left: Any, right: Any) -> ValuesCompared:
    sent: list[Any] = []
    monkeypatch.setattr(TRIAL, "send", sent.append)
    show_values(left, right)
    (event,) = sent
    assert isinstance(event, ValuesCompared)
    return event


NAN = float("nan")


@pytest.mark.parametrize(
    ("left", "right", "rows", "apart"),
    [
        (torch.tensor([1.0, NAN, 0.5]), torch.tensor([1.0, NAN, 0.25]), [("[2]", "0.5", "0.25")], (1, 3)),
        (torch.tensor(NAN), torch.tensor(0.0), [("", "nan", "0")], (1, 1)),
        (0.1 + 0.2, 0.3, [("", "0.30000000000000004", "0.3")], (0, 0)),
        (torch.tensor(1), 2, [("", "1", "2")], (0, 0)),
        (torch.tensor([True]), torch.tensor([False]), [("[0]", "True", "False")], (1, 1)),
        (torch.tensor([1 + 1j]), torch.tensor([1 + 2j]), [("[0]", "(1+1j)", "(1+2j)")], (1, 1)),
        (torch.ones(1).half(), torch.ones(1), [(".dtype", "torch.float16", "torch.float32")], (0, 0)),
        (torch.ones(1, 2), torch.ones(2), [(".shape", "(1, 2)", "(2,)")], (0, 0)),
        ((torch.ones(1), {"a": [3, 4]}), (torch.ones(1), {"a": [3, 5]}), [("[1]['a']", "[3, 4]", "[3, 5]")], (0, 0)),
        ([3] * 8 + [4], [3] * 8 + [5], [("[8]", "4", "5")], (0, 0)),
        ([None], [torch.ones(1)], [("[0]", "None", "1")], (0, 0)),
        ((torch.ones(1), 2), (torch.ones(1),), [("", "(tensor([1.]), 2)", "(tensor([1.]),)")], (0, 0)),
        (torch.Size([1]), (4,), [("", "(1,)", "(4,)")], (0, 0)),
        (torch.Size([1]), (1,), [], (0, 0)),
        ("x" * 100, "y", [("", f"{'x' * 80} ...", "y")], (0, 0)),
        (NAN, NAN, [], (0, 0)),
        (torch.ones(2), torch.ones(2), [], (0, 0)),
        (torch.ones(0), torch.ones(0), [], (0, 0)),
    ],
)
def test_the_first_place_that_differs_is_shown(
    left: Any, right: Any, rows: list[tuple[str, str, str]], apart: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    event = reported(monkeypatch, left, right)
    assert list(event.rows) == rows
    assert (event.apart, event.total) == (apart if rows else (0, 0))


def test_of_many_elements_those_are_shown_that_differ_most(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.arange(100.0).reshape(10, 10)
    left = right + 1e-6 * right  # rounding
    left[3, 4], left[9, 9] = float("inf"), -1.0
    event = reported(monkeypatch, left, right)
    assert ("[3, 4]", "inf", "34") in event.rows
    assert ("[9, 9]", "-1", "99") in event.rows
    assert len(event.rows) == 4
    assert event.apart > 50


def test_a_part_that_differs_by_rounding_does_not_hide_the_one_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    one, large = torch.full((2,), 1.0), torch.full((2,), 1e6)
    for wrong in (torch.full((2,), 0.5), torch.tensor([1.0, NAN]), one.double()):
        event = reported(monkeypatch, [one + 1e-6, large + 1, wrong], [one, large, one])
        assert event.rows[0][0].startswith("[2]")


def test_the_same_values_have_the_same_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    one = reported(monkeypatch, [torch.ones(2).bfloat16(), 1], [torch.ones(2).bfloat16(), True])
    assert one.digests[0] != one.digests[1]
    other = reported(monkeypatch, [torch.ones(2, 1).bfloat16(), 1], [torch.ones(2).bfloat16(), True])
    assert one.digests[0] != other.digests[0]
    assert one.digests[1] == other.digests[1]


def test_a_tensor_beyond_its_storage_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor has returned such a tensor: the view of a smaller buffer than uncompiled code makes."""
    right = torch.arange(4.0).as_strided((2, 2), (2, 1))
    left = (right + 1).as_strided((2, 2), (2, 1))
    left.untyped_storage().resize_(12)
    event = reported(monkeypatch, left, right)
    assert ("[1, 0]", "3", "2") in event.rows
