"""Paths and stacks, short."""

from __future__ import annotations

import pytest

from dynadiag.recording.records import Frame
from dynadiag.render.paths import fit_path, relative_path, short_stack, source_location
from dynadiag.render.wrap import width


@pytest.mark.parametrize(
    ("file", "cwd", "expected"),
    [
        ("/home/u/p/a.py", "/home/u/p", "a.py"),
        ("/home/u/a.py", "/home/u/p", "../a.py"),
        ("/usr/lib/a.py", "/home/u/deep/down/p", "/usr/lib/a.py"),
        ("/home/u/p/a.py", None, "/home/u/p/a.py"),
        ("<string>", "/home/u", "<string>"),
        (None, "/home/u", "<unknown>"),
    ],
)
def test_the_shorter_of_both_ways_is_shown(file: str | None, cwd: str | None, expected: str) -> None:
    assert relative_path(file, cwd) == expected


def test_columns_are_shown_as_editors_take_them() -> None:
    assert source_location("/p/a.py", 3, 0, "/p") == "a.py:3:1"
    assert source_location("/p/a.py", 3, None, "/p") == "a.py:3"
    assert source_location("/p/a.py", None, 4, "/p") == "a.py"


def test_of_a_long_path_the_end_is_kept() -> None:
    long = "/usr/lib/python3/site-packages/torch/nn/modules/linear.py:3 in forward"
    assert fit_path(long, 40) == "…/nn/modules/linear.py:3 in forward"
    assert fit_path(long, 100) == long
    assert len(fit_path("/a" * 500_000 + " in f", 40)) <= 40
    assert len(fit_path("x" * 100, 40)) == 40


@pytest.mark.parametrize("columns", [24, 30, 40, 60])
@pytest.mark.parametrize(
    "place",
    [
        "/usr/lib/python3/site-packages/transformers/models/a_very_long_module_name_of_a_model.py:1088",
        "/usr/lib/python3/a_very_long_module_name_of_a_model.py:1088:17",
        "/home/u/my in folder/a_very_long_module_name.py:1088 in a_function_with_a_name_that_is_long_too",
        "model.py:1088 in Wrapper.forward.<locals>.a_function_with_a_name_that_is_long_too_and_does_not_fit",
    ],
)
def test_the_line_is_never_cut(place: str, columns: int) -> None:
    shown = fit_path(place, columns)
    assert ":1088" in shown
    assert width(shown) <= columns


def test_the_middle_of_a_deep_stack_is_left_out() -> None:
    frames = [Frame(f"/p/{name}.py", 1, name) for name in "abcdefg"]
    assert short_stack(frames, "/p") == ["a.py:1 in a", "(4 more frames)", "f.py:1 in f", "g.py:1 in g"]
    assert len(short_stack(frames[:4], "/p")) == 4


def test_a_frame_and_its_generator_are_one_line() -> None:
    frames = [Frame("/p/a.py", line, "f") for line in (3, 3, 4, 3)]
    assert short_stack(frames, "/p") == ["a.py:3 in f", "a.py:4 in f", "a.py:3 in f"]
