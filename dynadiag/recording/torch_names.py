"""Names that torch and Triton generate, and the user's names behind them."""

from __future__ import annotations

import re

__all__ = ["TRITON_TEXT_STAGES", "is_resume_function", "original_name"]

TRITON_TEXT_STAGES = ("ttir", "ttgir", "llir", "ptx", "amdgcn")  # the stages of a kernel that Triton keeps as text

# torch names a resume function "torch_dynamo_resume_in_NAME_at_LINE" (2.11 to 2.15).
_RESUME = re.compile(r"torch_dynamo_resume_in_(?P<name>.+?)_at_\d+")


def is_resume_function(function: str) -> bool:
    """Whether torch made this function from the code after a graph break."""
    return _RESUME.search(function) is not None


def original_name(function: str) -> str:
    """Return the name that the user wrote, for a resume function of torch's, also after a second split."""
    while match := _RESUME.search(function):
        function = function[: match.start()] + match["name"] + function[match.end() :]
    return function
