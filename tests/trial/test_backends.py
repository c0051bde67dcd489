"""What the backend of a compiled graph is called."""

from __future__ import annotations

import pytest

from dynadiag.torch_private.trial import backend_name, lookup_backend
from dynadiag.trial.plan import RUNGS


@pytest.mark.parametrize("name", [rung for rung in RUNGS if rung not in ("uncompiled", "triton", "custom")])
def test_a_rung_given_as_a_function_is_that_rung(name: str) -> None:
    """Taken for a backend of the program's own, what is to be compiled at the rung below would go to Inductor."""
    assert backend_name(lookup_backend(name)) == name


def test_a_function_of_the_programs_is_shown_as_one() -> None:
    assert backend_name(lambda gm, inputs: gm).startswith("<")
