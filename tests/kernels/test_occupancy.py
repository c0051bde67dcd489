"""How full a processor gets: the worked cases of NVIDIA's occupancy calculator, and what holds for every kernel."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.kernels.triton_artifacts import occupancy


@pytest.mark.parametrize(
    ("warps", "registers", "shared", "expected"),
    [
        (4, 32, 0, 1.0),  # 16 blocks of 4 warps: nothing in the way
        (1, 16, 0, 0.5),  # 32 blocks at most, a warp each
        (8, 64, 0, 0.5),  # 64 * 32 * 8 registers a block: 4 blocks
        (8, 255, 0, 0.125),  # 256 * 32 * 8 registers: one block
        (4, 32, 100 * 1024, 0.125),  # 101 KiB a block of 228: two blocks
        (4, 32, 300 * 1024, 0.0),
    ],
)
def test_what_is_in_the_way_on_an_h100(warps: int, registers: int, shared: int, expected: float) -> None:
    assert occupancy(90, warps, registers, shared) == expected


def test_an_unknown_device_is_not_guessed_at() -> None:
    assert occupancy(12345, 4, 32, 0) is None


@given(st.sampled_from([80, 86, 89, 90, 100]), st.integers(1, 32), st.integers(1, 254), st.integers(0, 99 << 10))
def test_more_of_anything_never_fits_better(capability: int, warps: int, registers: int, shared: int) -> None:
    found = occupancy(capability, warps, registers, shared)
    assert found is not None
    assert 0 <= found <= 1
    assert (occupancy(capability, warps, registers + 1, shared) or 0) <= found
    assert (occupancy(capability, warps, registers, shared + 1) or 0) <= found
