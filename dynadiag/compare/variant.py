"""Variants: ways to call the function. Uncompiled, or compiled with a mode or a backend; with or without autocast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

EAGER = "eager"
AS_WRITTEN = "as-written"
MODES = (EAGER, AS_WRITTEN, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
AMP: dict[str, str | None] = {"none": None, "bf16": "bfloat16", "fp16": "float16"}  # names of dtypes in torch
DYNAMIC: dict[str, bool | None] = {"none": None, "true": True, "false": False}  # as `torch.compile` takes it
STEPS = ("call", "inference", "train")  # the plain call, without gradients, forward and backward


@dataclass(frozen=True, slots=True)
class Variant:
    """One variant of the comparison.

    ``name`` is the factory that makes the function. ``mode`` is one of `MODES`. ``eager`` compiles nothing and disables
    torch.compile inside the function; ``as-written`` calls the function as the factory returned it. ``backend`` takes
    the place of a mode. ``amp`` is the name of autocast's dtype.
    """

    name: str
    mode: str
    backend: str | None = None
    amp: str | None = None
    dynamic: bool | None = None
    step: str = "call"

    @property
    def label(self) -> str:
        """What distinguishes it from other variants of the same function: ``max-autotune, bfloat16, dynamic``."""
        shapes = {None: None, True: "dynamic", False: "static"}[self.dynamic]
        how = self.mode if self.backend is None else f"backend {self.backend}"
        return ", ".join(part for part in (how, self.amp, shapes) if part)

    @property
    def compiles(self) -> bool:
        """Whether the comparison compiles the function. Parts of it may call torch.compile in any case."""
        return self.backend is not None or self.mode not in (EAGER, AS_WRITTEN)

    @property
    def is_eager(self) -> bool:
        """Whether it runs without any compiler, so that the others are measured against it."""
        return self.backend is None and self.mode == EAGER


def variants(
    names: Sequence[str],
    modes: Sequence[str],
    backends: Sequence[str] = (),
    amp: Sequence[str] = ("none",),
    dynamic: Sequence[str] = ("none",),
    step: str = "call",
) -> tuple[Variant, ...]:
    """Return every combination, with the uncompiled baseline first.

    Several names are ways to compute the same thing: the first one, uncompiled, is the baseline of all. ``dynamic``
    applies only to variants that the comparison compiles.
    """
    chosen: dict[Variant, None] = {}
    for autocast in amp:
        chosen[Variant(names[0], EAGER, amp=AMP[autocast], step=step)] = None
        for variant in _compiled_variants(names, modes, backends, AMP[autocast], dynamic, step):
            chosen[variant] = None
    return tuple(chosen)


def _compiled_variants(
    names: Sequence[str],
    modes: Sequence[str],
    backends: Sequence[str],
    amp: str | None,
    dynamic: Sequence[str],
    step: str,
) -> Iterator[Variant]:
    choices = [(mode, None) for mode in modes if mode != EAGER] + [("default", backend) for backend in backends]
    for name, (mode, backend), shapes in product(names, choices, dynamic):
        setting = None if mode == AS_WRITTEN else DYNAMIC[shapes]
        yield Variant(name, mode, backend, amp, setting, step)
