"""What the words of reports and of the browser mean. `docs/glossary.md` has the same entries."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from dynadiag.explanation.registry import Registry

GLOSSARY = {
    # How a program is compiled
    "graph break": "A place that Dynamo cannot put in a graph. The graph ends there, Python runs that line, and "
    "another graph begins after it.",
    "recompile": "A function is compiled again because a guard failed: something that the first compile took for "
    "constant has changed.",
    "guard": "A check that runs before compiled code: is the input still what the code was compiled for?",
    "compile": "One translation of one function. `3/1` is the second one (counted from 0) of the function number 3.",
    "attempts": "How often Dynamo began this compile. It begins again after a break.",
    "skipped": "Dynamo left this function to Python: it runs, but not compiled.",
    "uncompiled": "The function runs in Python because of a break in it or above it.",
    "Dynamo": "The first part of the compiler. It runs your function symbolically and writes a graph of it.",
    "AOTAutograd": "The part after Dynamo: it makes the backward graph and replaces operators by simpler ones.",
    "Inductor": "The part after AOTAutograd: it fuses operators and generates code, C++ for a CPU, Triton for a GPU.",
    # Graphs, by the stage that they are taken at
    "dynamo": "The graph as Dynamo captured it: your operations, in your order.",
    "before_pre_grad": "Dynamo's graph before Inductor's first passes.",
    "pre_grad": "The graph after Inductor's first passes. It has no backward yet.",
    "joint": "Forward and backward in one graph, before they are split.",
    "inference": "The graph of a call that needs no gradient, in ATen operators.",
    "forward": "The forward graph, in ATen operators. It also returns what the backward needs.",
    "backward": "The graph of the gradients. It runs when `backward()` is called.",
    "before_post_grad": "The forward or backward graph before Inductor's last passes.",
    "post_grad": "The graph after Inductor's last passes. Kernels are generated from this one.",
    # Kernels
    "extern": "A call of a library (cuBLAS, oneDNN, ATen) instead of code that Inductor generated.",
    "triton": "A kernel in Triton, which is compiled for a GPU.",
    "cpp": "A kernel in C++ for the CPU.",
    # Guards
    "TENSOR_MATCH": "Type, dtype, device, sizes, strides and requires_grad of a tensor are as before.",
    "SHAPE_ENV": "The relations between symbolic sizes hold, such as `2 <= s0`.",
    "LAMBDA_GUARD": "An expression holds, mostly one on symbolic sizes.",
    "EQUALS_MATCH": "A value equals the one that was compiled in.",
    "ID_MATCH": "It is the same object as before.",
    "TYPE_MATCH": "An object has the same type as before.",
    "LENGTH_CHECK": "A list, tuple or other sequence has the same length.",
    "DICT_CONTAINS": "A dict has a key, or does not have it, as before.",
    "GLOBAL_STATE": "Settings of torch are as before: gradients on or off, autocast, default dtype, determinism.",
    "DEFAULT_DEVICE": "The default device is as before.",
    "TORCH_FUNCTION_MODE_STACK": "The active torch function modes are as before.",
    "DIMENSION_DYNAMIC_MARKING_GUARD": "The marks of `torch._dynamo.mark_dynamic` on a tensor are as before.",
    "DICT_LENGTH": "A dict has as many items as before.",
    "NONE_MATCH": "A value is None, as before.",
    "TRUE_MATCH": "A value is True, as before.",
    "FALSE_MATCH": "A value is False, as before.",
    "NO_TENSOR_ALIASING": "No two of the tensors that are passed are the same one, as before.",
    # Searches
    "trial": "One run of the program in a process of its own, with a part of the compiler switched on or off.",
    "same failure": "The trial failed as the first one did: by kind, type, message and place.",
    "other failure": "The trial failed, but not as the first one did.",
    "forked": "The trial ran in a copy of a process that had torch loaded already.",
    "rung": "How much of the compiler runs, from nothing (`uncompiled`) to all of it (`inductor`).",
    "witness": "A step of a reduction: only the operations that the failure names are kept, and what they need.",
    "sweep": "A step of a reduction: one operation after another is left out.",
    "culprit": "The smallest decision of the compiler without which the program does not fail.",
    "eager": "Dynamo's graph, run by torch operator by operator.",
    "aot_eager": "The graphs of AOTAutograd, run operator by operator.",
    "aot_eager_decomp_partition": "As aot_eager, with the decompositions and the partitioner that Inductor uses.",
    "inductor": "All of the compiler.",
    "numerics": "A result that is wrong by more than rounding explains.",
    "inferred": "A link between lines that is derived from the texts. Other links are stated by torch.",
}
_OTHER_FORMS = {
    "graph breaks": "graph break",
    "recompiles": "recompile",
    "guards": "guard",
    "trials": "trial",
    "rungs": "rung",
    # the browser's names of stages
    "after passes": "post_grad",
    "before passes": "before_post_grad",
    "pre grad": "pre_grad",
}
_WORD = re.compile(r"(?<![\w.])[A-Za-z][A-Za-z_]*+(?![\w(])")  # not a part of a name, or what is called
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")  # what torch's registry puts the value of a break in the place of
_ID = re.compile(r"\bGB\d{4}\b")


def explain_words(text: str) -> Iterator[tuple[str, str]]:
    """Yield each word of a text that the glossary or torch's registry of breaks knows, with what it means.

    Raises `DynadiagError` if torch's registry is damaged.
    """
    entries = Registry.installed().entries if _ID.search(text) else {}
    for gb_id in dict.fromkeys(_ID.findall(text)):
        if entry := entries.get(gb_id):
            meaning = " ".join(part for part in (f"{entry.gb_type}.", entry.family.meaning, entry.explanation) if part)
            yield gb_id, _PLACEHOLDER.sub("…", meaning)
    words = _WORD.findall(text)
    pairs = (" ".join(pair) for pair in itertools.pairwise(words))
    known = (_OTHER_FORMS.get(word.lower(), word) for word in (*pairs, *words))
    for word in dict.fromkeys(known):
        if word in GLOSSARY:
            yield word, GLOSSARY[word]
