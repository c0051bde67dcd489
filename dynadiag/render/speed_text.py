"""How fast a variant of a comparison is, in words: against the uncompiled call, and when compiling has paid."""

from __future__ import annotations

from dynadiag.explanation.formatting import count

__all__ = ["break_even", "relative_speed"]


def relative_speed(ratio: float, *, noise: bool) -> str:
    """The time of the uncompiled call by that of the variant: ``1.33x faster``.

    >>> relative_speed(0.5, noise=False)
    '2.00x slower'
    """
    if noise or ratio <= 0:
        return "within the noise"
    return f"{ratio:.2f}x faster" if ratio >= 1 else f"{1 / ratio:.2f}x slower"


def break_even(pays_after: int | None, *, noise: bool) -> str:
    """After how many calls both have taken equally long; None is never. Within the noise that means nothing."""
    if noise:
        return "-"
    return "never" if pays_after is None else count(pays_after, "call")
