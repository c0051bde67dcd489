"""The advice on failed compiles: the part of the table in `advice_table`."""

from __future__ import annotations

from dynadiag.explanation.advice_entry import AdviceEntry, tried

__all__ = ["FAILURES"]

FAILURES = {
    "failed.mark_dynamic": tried(
        "Drop the mark, or use `torch._dynamo.maybe_mark_dynamic`, which lets it be {value}; for a size that may vary, "
        "take the number out of the code at this line.",
        "marks_a_fixed_size",
    ),
    "failed.range": tried(
        "Mark the range that the code holds for, `{held}` (`mark_dynamic(tensor, dimension, min=..., max=...)`), or "
        "use `torch._dynamo.maybe_mark_dynamic`, which compiles again beyond it; for one code for all, take out the "
        "branch on the size.",
        "marks_a_wide_range",
    ),
    "failed.multiple": tried(
        "`mark_dynamic` states a range of sizes, and the code holds only for multiples, `{held}`: use "
        "`torch._dynamo.maybe_mark_dynamic`, which compiles again for other sizes; for one code for all, take out the "
        "branch on the size, or pad before the call.",
        "marks_multiples",
    ),
    "failed.rest": tried(
        "torch failed on what it made of the rest of `{function}` behind the graph break at line {line}: end that "
        "break, and there is no such rest.",
        "breaks_in_a_transform",
    ),
    "failed.no_triton_driver": AdviceEntry(
        'Triton has no driver here that could run the kernel: none for a CPU (`cpu_backend = "triton"`), and no GPU. '
        "`dynadiag explain --target h100` records what a GPU would get, and `dynadiag bisect --rungs triton` runs "
        "the kernels in Triton's interpreter."
    ),
    "failed.no_autograd": tried("Register one with `torch.library.register_autograd`.", "operator_without_autograd"),
    "failed.coroutine": tried(
        "Compile the plain function that it calls, and not the `async def` or generator: torch cannot go on in the "
        "middle of one.",
        "a_coroutine",
    ),
    "failed.backend": tried("The exception comes from {stage}: mend it there, or use another.", "failing_backend"),
    "failed.bisect": AdviceEntry(
        "`dynadiag bisect` names the part of the compiler that is at fault.", otherwise="unchecked"
    ),
    "failed.minify": AdviceEntry(
        "`dynadiag minify` writes a small program with this failure, for a bug report.", otherwise="unchecked"
    ),
}
