"""Cut the source of one kernel out of the generated module that defines it."""

from __future__ import annotations

import re

__all__ = ["kernel_source"]


def kernel_source(module: str, name: str) -> str | None:
    """Return the source of kernel `name` in a generated module, or None if the module only calls it.

    Inductor writes ``NAME = async_compile.KIND(ARGUMENTS, '''SOURCE''', ...)``.
    """
    start = re.search(rf"(?m)^{re.escape(name)} = async_compile\.\w+\(", module)
    if start is None:
        return None
    quote = re.compile(r"r?('''|\"\"\")").search(module, start.end())
    if quote is None:
        return None
    end = module.find(quote[1], quote.end())
    return module[quote.end() : end if end >= 0 else len(module)].strip("\n") + "\n"
