"""What a call needs of a notebook, as files: the cells that define it, and the values that they use.

A cell is a file ``In[3].py`` with its whole text, so that a change of it is a change of the cell. A trial runs only the
definitions in it that the call needs: what else stands in a cell (training, the call of `dynadiag.fix` itself) has run
in the notebook. Modules and values that definitions use by a global name are pickled.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import io
import pickle
import symtable
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from dynadiag.capture.run_metadata import running_shell
from dynadiag.errors import DynadiagError

MODULE = "dynadiag_notebook"  # stands for the notebook's ``__main__``
_STATE = f"{MODULE}.pickle"
_SCRIPT = "from dynadiag.fixes.notebook_cells import load_cells\n\nload_cells(globals(), __file__)\n"
_RUN_BY_MAGIC = ("%%dynadiag", "%%time", "%%capture", "%%prun")
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_Added = _Definition | ast.Import | ast.ImportFrom | ast.Assign | ast.Expr  # what a change adds, as a line that sets


class CallPickler(pickle.Pickler):
    """Pickles modules by their names, and notes those of functions and classes of the main program."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.names = set[str]()

    def reducer_override(self, obj: Any) -> Any:
        """How a module is made again; anything else is pickled as usual."""
        if isinstance(obj, ModuleType):
            return importlib.import_module, (obj.__name__,)
        if isinstance(obj, FunctionType | type) and obj.__module__ == "__main__":
            self.names.add(obj.__qualname__.partition(".")[0])
        return NotImplemented


class CallUnpickler(pickle.Unpickler):
    """Imports what the caller's main program defines from the module ``main``."""

    def __init__(self, data: bytes, main: str) -> None:
        super().__init__(io.BytesIO(data))
        self._main = main

    def find_class(self, module: str, name: str) -> Any:
        """The function or class of a name."""
        return super().find_class(self._main if module == "__main__" else module, name)


def imported_packages() -> set[str]:
    """The packages that the notebook has by their own names: each of its cells can use them."""
    known = running_shell().user_ns
    return {name for name, value in known.items() if isinstance(value, ModuleType) and value.__name__ == name}


def write_cells(folder: Path, needed: set[str]) -> Mapping[str, bytes]:
    """Write the cells that define the ``needed`` functions and classes, and what these use, into a folder.

    Returns the files that each copy of the folder needs besides: the module `MODULE`, and its state. Raises
    `DynadiagError` for a name that no cell defines, or whose value cannot be pickled.
    """
    shell = running_shell()
    cells, known = _Cells(shell), shell.user_ns
    wanted, run = sorted(needed | imported_packages()), dict[int, set[str]]()
    seen, values = set[str](), dict[str, bytes]()
    while wanted:
        name = wanted.pop()
        if name in seen or name not in known:
            continue
        seen.add(name)
        defined = cells.definitions.get(name) if _is_of_notebook(known[name]) else None
        if defined is not None:
            number, statement = defined
            run.setdefault(number, set()).add(name)
            wanted += _globals_of(statement)
        elif name in needed:
            raise DynadiagError(f"fix: no cell of this notebook defines {name} at its top level")
        else:
            values[name], others = _pickled(name, known[name])
            needed |= others
            wanted += others
    names, originals = dict[str, set[str]](), dict[str, set[str]]()
    for number in sorted(run):
        file, text = f"In[{number}].py", cells.texts[number]
        (folder / file).write_text(text, encoding="utf-8")
        names[file], originals[file] = run[number], {ast.dump(each) for each in ast.parse(text).body}
    path = [str(Path(entry).absolute()) for entry in sys.path]
    state = {"path": path, "values": values, "names": names, "originals": originals}
    return {f"{MODULE}.py": _SCRIPT.encode(), _STATE: pickle.dumps(state)}


def _is_of_notebook(value: object) -> bool:
    return callable(value) and getattr(value, "__module__", None) == "__main__"


class _Cells:
    """The cells that have run: their texts by their numbers, and the last definition of each name, with its cell."""

    def __init__(self, shell: Any) -> None:
        raw = shell.history_manager.input_hist_raw
        self.texts: dict[int, str] = {}
        self.definitions: dict[str, tuple[int, _Definition]] = {}
        for number, transformed in enumerate(shell.user_ns["In"]):
            for text in (_without_magic(raw[number] if number < len(raw) else ""), transformed):
                try:
                    body = ast.parse(text).body
                except (SyntaxError, ValueError):
                    continue
                self.texts[number] = text.rstrip("\n") + "\n"
                self.definitions |= {each.name: (number, each) for each in body if isinstance(each, _Definition)}
                break


def _without_magic(text: str) -> str:
    """The code below a magic that runs it in the notebook, on the same lines."""
    first, _, rest = text.partition("\n")
    return f"# {first}\n{rest}" if first.split(" ")[0] in _RUN_BY_MAGIC else text


def _globals_of(statement: _Definition) -> list[str]:
    """The global names that a definition uses, in it or in what is defined within it."""
    tables, names = [symtable.symtable(ast.unparse(statement), "<cell>", "exec")], list[str]()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        at_top = table.get_type() == "module"
        names += [symbol.get_name() for symbol in table.get_symbols() if symbol.is_global() or at_top]
    return [name for name in names if not hasattr(builtins, name)]


def _pickled(name: str, value: object) -> tuple[bytes, set[str]]:
    """A value, and the names of the notebook's functions and classes in it."""
    file = io.BytesIO()
    pickler = CallPickler(file)
    try:
        pickler.dump(value)
    except Exception as error:
        raise DynadiagError(f"fix: `{name}`, which the call uses, cannot be pickled ({error})") from error
    return file.getvalue(), pickler.names


def load_cells(namespace: dict[str, Any], script: str) -> None:
    """Make the module `MODULE`: the values, and the definitions of the cells that stand beside ``script``.

    A value that has an object of the notebook's own class is made once that class is defined.
    """
    folder = Path(script).parent
    state = pickle.loads((folder / _STATE).read_bytes())  # noqa: S301 - this process's parent wrote it
    sys.path += [entry for entry in state["path"] if entry not in sys.path]
    pending = _made(namespace, state["values"])
    for name, defined in state["names"].items():
        text = (folder / name).read_text(encoding="utf-8")
        for part in _executed(text, defined, state["originals"][name]):
            exec(compile(part, str(folder / name), "exec"), namespace)  # noqa: S102 - the user's own cells
            pending = _made(namespace, pending)
    for data in pending.values():
        CallUnpickler(data, MODULE).load()  # it raises what is wrong


def _executed(text: str, defined: set[str], original: set[str]) -> Iterator[ast.Module]:
    """The definitions of a cell that the call needs, and what a change has put beside them."""
    body = ast.parse(text).body
    future = [each for each in body if isinstance(each, ast.ImportFrom) and each.module == "__future__"]
    for statement in body:
        is_needed = isinstance(statement, _Definition) and statement.name in defined
        if is_needed or (isinstance(statement, _Added) and ast.dump(statement) not in original):
            yield ast.Module([*future, statement], [])


def _made(namespace: dict[str, Any], values: Mapping[str, bytes]) -> dict[str, bytes]:
    """Put the values into the module. Returns the values whose class is not defined yet."""
    pending = {}
    for name, data in values.items():
        try:
            namespace[name] = CallUnpickler(data, MODULE).load()
        except AttributeError:
            pending[name] = data
    return pending
