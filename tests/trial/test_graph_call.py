"""The call of a graph in a trial."""

from __future__ import annotations

import torch

from dynadiag.trial.graph_call import differentiate


def test_the_backward_runs_where_the_program_has_left_gradients_off() -> None:
    """A graph that is reduced may turn them off, and no longer on: the backward would fail by that alone."""
    x = torch.ones(2, requires_grad=True)
    result = x * 3
    with torch.no_grad():
        differentiate(result)
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 3.0]


def test_a_complex_result_is_differentiated() -> None:
    x = torch.ones(2, dtype=torch.complex64, requires_grad=True)
    differentiate(x * 3)
    assert x.grad is not None
