"""The user's names behind those that torch makes up (`recording.code_origin`)."""

from __future__ import annotations

import pytest

from dynadiag.recording.code_origin import named_frames, original_name, path_in_packages, short_place, user_frames
from dynadiag.recording.records import Frame


@pytest.mark.parametrize(
    ("made", "written"),
    [
        ("forward", "forward"),
        ("Net.torch_dynamo_resume_in_forward_at_31", "Net.forward"),
        ("torch_dynamo_resume_in_torch_dynamo_resume_in_forward_at_3_at_9", "forward"),
    ],
)
def test_a_function_split_however_often_has_its_own_name(made: str, written: str) -> None:
    assert original_name(made) == written


def test_the_parts_of_a_split_function_are_one_frame_and_a_function_that_calls_itself_is_not() -> None:
    main, again = Frame("a.py", 9, "main"), Frame("a.py", 3, "f")
    parts = (Frame("a.py", 1, "f"), Frame("a.py", 2, "torch_dynamo_resume_in_f_at_1"))
    assert named_frames((main, *parts)) == (main, Frame("a.py", 2, "f"))
    assert named_frames((main, *parts, again)) == (main, Frame("a.py", 2, "f"), again)
    assert named_frames(parts[1:]) == (Frame("a.py", 2, "f"),)


@pytest.mark.parametrize(
    ("file", "inside"),
    [
        ("/usr/lib/python3.11/site-packages/torch/nn/modules/linear.py", "torch/nn/modules/linear.py"),
        ("/usr/lib/python3/dist-packages/torch/nn/modules/linear.py", "torch/nn/modules/linear.py"),
        ("/home/a/site-packages/env/lib/python3.11/site-packages/six.py", "six.py"),
        (r"C:\env\Lib\site-packages\six.py", "six.py"),
        ("/home/a/train.py", None),
        ("/home/a/my-site-packages/train.py", None),
    ],
)
def test_the_path_of_an_installed_file_begins_at_its_package(file: str, inside: str | None) -> None:
    assert path_in_packages(file) == inside


def test_how_we_start_a_program_is_no_frame_of_the_user() -> None:
    started = Frame("<string>", 1, "<module>")
    ours = Frame("/site-packages/dynadiag/trial/program.py", 9, "main")
    script, typed = Frame("/home/me/train.py", 3, "<module>"), Frame("<string>", 2, "step")
    assert user_frames((started, ours, script, typed)) == (script, typed)
    assert user_frames((script, ours, typed)) == (script, typed)
    assert user_frames((typed,)) == (typed,)
    assert user_frames(()) == ()


def test_pytest_is_no_frame_of_the_user() -> None:
    runs = Frame("/env/lib/python3.11/site-packages/_pytest/python.py", 187, "pytest_pyfunc_call")
    command, test = Frame("/env/bin/pytest", 8, "<module>"), Frame("/home/me/tests/test_net.py", 3, "test_net")
    assert user_frames((command, runs, test)) == (test,)
    assert user_frames((command, runs)) == (command, runs)


@pytest.mark.parametrize(
    ("file", "place"), [("/home/me/net.py", "net.py:5"), ("<In[3]>", "In[3]:5"), (None, ":5"), ("net.py", "net.py:5")]
)
def test_a_place_is_named_as_its_reader_knows_it(file: str | None, place: str) -> None:
    assert short_place(file, 5) == place
