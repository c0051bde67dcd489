from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from dynadiag.bisect import fakes
from dynadiag.bisect.operators import is_custom
from dynadiag.trial.runtime import TRIAL

_library = torch.library.Library("dynadiag_fakes", "DEF")


def _define(name: str, real: object, promise: object) -> None:
    _library.define(f"{name}(Tensor x) -> Tensor")
    _library.impl(name, real, "CPU")  # type: ignore[arg-type]
    torch.library.register_fake(f"dynadiag_fakes::{name}", promise, lib=_library)  # type: ignore[arg-type]


_define("honest", lambda x: x * 2, torch.empty_like)
_define("dtype", lambda x: x.double(), torch.empty_like)
_define("shape", lambda x: x * 2, lambda x: x.new_empty(x.shape[0] + 1, *x.shape[1:]))
_define("strides", lambda x: x * 2, lambda x: x.new_empty(x.shape[::-1]).t())
_define("raises", lambda x: x * 2, lambda x: x.no_such_thing)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    texts: list[str] = []
    monkeypatch.setattr(TRIAL, "send", lambda event, **data: texts.append(data["text"]))
    with fakes._Compared():
        yield texts


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("honest", None),
        ("dtype", "returns torch.float64 where its fake kernel promises torch.float32"),
        ("shape", "returns the shape [2, 3] where its fake kernel promises [3, 3]"),
        ("strides", "returns the strides [3, 1] where its fake kernel promises [1, 2]"),
        ("raises", "raises AttributeError"),
    ],
)
def test_what_a_fake_kernel_promises_is_held_against_what_comes(told: list[str], name: str, says: str | None) -> None:
    operator = getattr(torch.ops.dynadiag_fakes, name)
    for _ in range(2):
        operator(torch.ones(2, 3))
    assert len(told) == (says is not None), told
    assert says is None or says in told[0]


@pytest.mark.parametrize("name", ["aten.relu.default", "prims.inductor_random.default", "<built-in function add>"])
def test_torch_s_own_operators_are_left_alone(name: str) -> None:
    assert not is_custom(name)
