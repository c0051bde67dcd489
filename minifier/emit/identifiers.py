"""Chooses readable names: valid, unique, and not shadowing any name that the program uses."""

from __future__ import annotations

import builtins
import keyword
import operator
import re
from collections.abc import Iterable

import torch
from torch import fx

_INPUTS = ("x", "y", "z", "a", "b", "c", "d", "e", "p", "q", "r", "s", "t", "u", "v", "w")
# Names that torch gives to inputs: L_x_ for a local, L_self_modules_fc_parameters_weight_, primals_1, arg0_1.
_LOCAL = re.compile(r"^[Ll]_+(?:self_)?(?:(?:.*_)?(?:parameters|buffers)_)?(\w+?)_*$")
_MADE_UP = re.compile(r"^(primals|arg|child|tangents|fn_args|args|kwargs|placeholder|s|sym_size_int)_?\d*(_\d+)*$")
_RESERVED = frozenset(
    {"torch", "math", "operator", "base64", "zlib", "f", "compiled", "expected", "actual", "base", "main"}
)


class NameAllocator:
    """Hands out unique names."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {*_RESERVED, *taken}

    def input_names(self, nodes: Iterable[fx.Node]) -> dict[fx.Node, str]:
        """Names for all inputs. Names of the user's variables take precedence over generated ones."""
        given = sorted(nodes, key=lambda node: _LOCAL.match(node.name) is None)
        return {node: self.input_name(node.name) for node in given}

    def input_name(self, name: str) -> str:
        """The user's name if torch kept it. A letter if torch generated the name, or if it is an operation's name."""
        local = _LOCAL.match(name)
        wanted = re.sub(r"(_+\d+)+$", "", local.group(1) if local else name)
        if _MADE_UP.match(name) or (not local and _is_operation(name)) or not self._usable(wanted):
            return self.unique_name(next((letter for letter in _INPUTS if letter not in self._taken), "x"))
        return self.unique_name(wanted)

    def value_name(self, name: str) -> str:
        """The operation's name, without the number that made it unique in the whole graph."""
        plain = re.sub(r"(_\d+)+$", "", name)
        return self.unique_name(plain if self._usable(plain) else name)

    def unique_name(self, wanted: str) -> str:
        """The wanted name, or the name with the smallest number that is unused."""
        stem = re.sub(r"\W", "_", wanted, flags=re.ASCII) or "x"
        stem = f"_{stem}" if stem[0].isdigit() else stem
        name, count = stem, 1
        while not self._usable(name):
            count += 1
            name = f"{stem}{'' if stem[-1].isalpha() else '_'}{count}"
        self._taken.add(name)
        return name

    def _usable(self, name: str) -> bool:
        known = keyword.iskeyword(name) or keyword.issoftkeyword(name) or hasattr(builtins, name)
        return name.isidentifier() and name.isascii() and not known and name not in self._taken


def _is_operation(name: str) -> bool:
    """Whether an input has the name of an operation: then it is the value of an operation that was removed."""
    stem = re.sub(r"(_\d+)+$", "", name)
    return len(stem) > 1 and any(hasattr(home, stem) for home in (torch.Tensor, torch, torch.nn.functional, operator))
