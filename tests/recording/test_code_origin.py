"""The user's names behind those that torch makes up (`recording.code_origin`)."""

from __future__ import annotations

import pytest

from dynadiag.recording.code_origin import original_name


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
