"""All advice that a report can give, in one table: its text, and the programs on which it was tried.

A report marks advice by this table, and by `break_remedies`. What has no trial for a case is not called tried.
Each program is in `tests/explanation/advice_programs.py`, and
`tests/explanation/test_advice_table.py` runs it as it is and as the advice says: what the advice is about is there
before and gone after, and the results are the same. What is said here of torch was tried on torch 2.13.

`make docs` writes the page of the documentation.
"""

from __future__ import annotations

from dynadiag.explanation.advice_entry import usual
from dynadiag.explanation.advice_on_failures import FAILURES
from dynadiag.explanation.findings import Advice

__all__ = ["SECTIONS", "TABLE", "advice"]

# Graphs that bypass the caches. `dynadiag caches` tries them where it can.
_CACHES = {
    "cache.uuid": usual(
        "Make the pass a subclass of torch._inductor.custom_graph_pass.CustomGraphPass whose uuid() returns "
        "get_hash_for_files((__file__,)): the key then changes only if its file does."
    ),
    "cache.freezing": usual(
        "Leave torch._inductor.config.freezing off, or load a package that AOTInductor has compiled before."
    ),
    "cache.context_fn": usual("Give the context_fn an attribute cache_hash, a text that changes with what it decides."),
    "cache.budget": usual(
        "Subclass torch._functorch.partitioners' CustomRuntimeEstimator or CustomKnapsackSolver and return a uuid()."
    ),
    "cache.autograd_function": usual(
        "Set torch._functorch.config.autograd_cache_allow_custom_autograd_functions = True: forward and backward are "
        "part of the key."
    ),
    "cache.higher_order": usual(
        "Compile what is around it by itself: the other graphs are cached then. Or vouch for it: "
        'torch._inductor.config.unsafe_marked_cacheable_functions["{whole}"] = a text that changes with the functions '
        "that it is given."
    ),
    "cache.autocast": usual(
        "Enter autocast around the call of the compiled function, not within it: the key has the state of autocast."
    ),
    "cache.constant_folding": usual("Leave torch._inductor.config.aot_inductor.use_runtime_constant_folding off."),
    "cache.function": usual(
        "Make {name} a custom operator (torch.library.custom_op), or vouch for it: "
        'torch._inductor.config.unsafe_marked_cacheable_functions["{module}.{name}"] = a text that changes with it.'
    ),
}

# Ranks of one job that are not alike.
_RANKS = {
    "ranks.sizes": usual(
        "Give each rank the same sizes (pad to a length that all ranks agree on), or compile for all sizes at once: "
        "`torch._dynamo.mark_dynamic` on the tensor, or `dynamic=True`."
    ),
    "ranks.collectives_agree": usual(
        "`torch._dynamo.config.enable_compiler_collectives = True` makes ranks agree on which sizes are dynamic."
    ),
    "ranks.value": usual("Make the value the same on each rank, or keep it in a tensor."),
    "ranks.code": usual(
        "Run the same code on each rank inside what is compiled: move what only some ranks do out of it, "
        "before or after the call."
    ),
    "ranks.collectives": usual(
        "Issue the same collectives in the same order on each rank: a rank that has nothing gives zeros."
    ),
    "ranks.branch": usual("Make what the code branches on the same on each rank, or give it to the graph as a tensor."),
    "ranks.cache": usual(
        "Give all ranks one cache folder (TORCHINDUCTOR_CACHE_DIR on a shared disk), or fill each host's first, "
        "for instance with `torch.compiler.save_cache_artifacts` and `load_cache_artifacts`."
    ),
    "ranks.compile": usual(
        "Compile it on each rank or on none: compiled code may issue other collectives, and rounds otherwise."
    ),
}

SECTIONS = {
    "Failed compiles": FAILURES,
    "Graphs that bypass a cache": _CACHES,
    "Ranks that are not alike": _RANKS,
}
TABLE = {key: entry for section in SECTIONS.values() for key, entry in section.items()}


def advice(key: str, *, case: str | None = None, **slots: object) -> Advice:
    """Return a piece of advice of the table. ``case`` is the id of the graph break that it is for."""
    entry = TABLE[key]
    return Advice(entry.text.format(**slots), entry.checked(case), entry.source, key)
