"""The speed of a variant of a comparison in words: relative to the uncompiled call, and its break-even."""

from __future__ import annotations

from dynadiag.explanation.formatting import count


def speed_text(ratio: float, *, noise: bool) -> str:
    """``ratio`` is the time of the uncompiled call divided by that of the variant: ``1.33x faster``.

    >>> speed_text(0.5, noise=False)
    '2.00x slower'
    """
    if noise or ratio <= 0:
        return "within the noise"
    return f"{ratio:.2f}x faster" if ratio >= 1 else f"{1 / ratio:.2f}x slower"


def break_even_text(calls: int | None, *, noise: bool) -> str:
    """After how many calls compiling has paid for itself; ``None`` is never. Within the noise that means nothing."""
    if noise:
        return "-"
    return "never" if calls is None else count(calls, "call")
