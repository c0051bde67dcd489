"""Occupancy of a kernel on an NVIDIA GPU: the share of a multiprocessor's warps that can be resident at once.

The limits are those of the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". Registers are
allocated per warp in units of 256, and each block takes 1 KiB of shared memory besides its own (the same guide, and the
occupancy calculator of Nsight Compute).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["occupancy"]

_WARP = 32  # threads
_REGISTER_UNIT = 256  # registers are allocated to a warp in this unit
_SHARED_UNIT = 128  # bytes; shared memory is allocated to a block in this unit
_RESERVED_SHARED = 1024  # bytes of shared memory that the system takes per block, since compute capability 8.0


@dataclass(frozen=True, slots=True)
class _Limits:
    """Limits of one multiprocessor: warps, blocks, bytes of shared memory, 32-bit registers."""

    warps: int
    blocks: int
    shared: int
    registers: int = 65536


_KIB = 1024
_LIMITS = {
    80: _Limits(64, 32, 164 * _KIB),
    86: _Limits(48, 16, 100 * _KIB),
    87: _Limits(48, 16, 164 * _KIB),
    89: _Limits(48, 24, 100 * _KIB),
    90: _Limits(64, 32, 228 * _KIB),
    100: _Limits(64, 32, 228 * _KIB),
    103: _Limits(64, 32, 228 * _KIB),
    120: _Limits(48, 24, 100 * _KIB),
}


def occupancy(capability: int, warps: int, registers: int, shared: int) -> float | None:
    """Return the occupancy, 0 to 1, for blocks of `warps` warps.

    `registers` is per thread, `shared` in bytes per block. `capability` is 90 for 9.0; an unknown one gives None.
    """
    limits = _LIMITS.get(capability)
    if limits is None or warps <= 0:
        return None
    by_registers = limits.registers // _round_up(max(registers, 1) * _WARP, _REGISTER_UNIT) // warps
    by_shared = limits.shared // _round_up(shared + _RESERVED_SHARED, _SHARED_UNIT)
    return min(limits.blocks, limits.warps // warps, by_registers, by_shared) * warps / limits.warps


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
