"""The program of a distributed job's ranks as one file: alone with a fake process group, or with ranks of its own.

A candidate of the reduction is the program of a rank. A `JobForm` makes it a file that runs without a launcher.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dynadiag.trial.events import LaunchedJob

_FAKE_STORE = "torch.testing._internal.distributed.fake_pg"
_RUN = """
def run_rank(rank_number, rank_port):
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=f"{rank_port}")
    os.environ.update(RANK=f"{rank_number}", LOCAL_RANK=f"{rank_number}", WORLD_SIZE="@", LOCAL_WORLD_SIZE="@")
"""
_START = """

if __name__ == "__main__":
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]  # a free one
    @
"""
_SPAWN = "torch.multiprocessing.spawn(run_rank, (port,), nprocs=@)"
_FORK = 'torch.multiprocessing.start_processes(run_rank, (port,), nprocs=@, start_method="fork")'
_IMPORTS = "import os\nimport socket\nimport torch.multiprocessing"


@dataclass(frozen=True, slots=True)
class JobForm:
    """A way to run the program of a rank by itself. With a ``fake_rank`` it is one process, which is that rank of
    ``ranks``; its collectives do nothing. Else it starts ``ranks`` processes.
    """

    ranks: int
    fake_rank: int | None = None

    @property
    def description(self) -> str:
        """The form, for the header of the repro."""
        if self.fake_rank is not None:
            return f"rank {self.fake_rank} of {self.ranks}, whose collectives do nothing"
        return f"{self.ranks} ranks, each a process"

    def file(self, program: str, *, forked: bool = False) -> str:
        """The program of a rank as a file. ``forked`` starts its processes as forks, which takes no second import of
        torch.
        """
        tree = _without_main_guard(ast.parse(program))
        if self.fake_rank is not None:
            return self._alone(tree)
        return self._spawning(tree, (_FORK if forked else _SPAWN).replace("@", str(self.ranks)))

    def _alone(self, tree: ast.Module) -> str:
        call = f'("fake", rank={self.fake_rank}, world_size={self.ranks}, store={_FAKE_STORE}.FakeStore())'
        arguments = ast.parse(f"f{call}", mode="eval").body
        assert isinstance(arguments, ast.Call)
        nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
        starts = [node for node in nodes if ast.unparse(node.func).endswith("init_process_group")]
        for node in starts:
            node.args, node.keywords = arguments.args, arguments.keywords
        place = f'RANK="{self.fake_rank}", LOCAL_RANK="{self.fake_rank}", WORLD_SIZE="{self.ranks}"'
        environment = f"os.environ.update({place})\n" if "environ" in ast.unparse(tree) else ""
        future, rest = _split_future(tree.body)
        imports = "import os\n" * bool(environment) + f"import {_FAKE_STORE}\n" * bool(starts)
        return f"{_text(future)}{imports}{environment}{_text(rest)}"

    def _spawning(self, tree: ast.Module, start: str) -> str:
        before, inside = _split(tree.body)
        names = sorted(_names_bound(inside))
        scope = ast.parse(f"global {', '.join(names)}").body if names else []
        function = ast.parse(_RUN.replace("@", str(self.ranks))).body[0]
        assert isinstance(function, ast.FunctionDef)
        function.body = [*scope, *function.body, *inside]
        future, before = _split_future(before)
        present = set(map(ast.unparse, before))
        imports = [each for each in ast.parse(_IMPORTS).body if ast.unparse(each) not in present]
        return f"{_text([*future, *imports, *before])}\n\n{_text([function])}{_START.replace('@', start)}"


def forms_of_job(job: LaunchedJob, rank: int | None) -> Iterator[JobForm]:
    """The forms to try, the simplest first. ``rank`` is the one that fails."""
    yield JobForm(job.ranks, fake_rank=rank or 0)
    yield from (JobForm(count) for count in sorted({2, job.ranks}) if count <= job.ranks)


def _text(statements: list[ast.stmt]) -> str:
    tree = ast.fix_missing_locations(ast.Module(statements, []))
    return f"{ast.unparse(tree)}\n" if statements else ""


def _without_main_guard(tree: ast.Module) -> ast.Module:
    """The program with what is below ``if __name__ == "__main__":`` run in each rank: there it has another name."""
    body: list[ast.stmt] = []
    for statement in tree.body:
        guarded = isinstance(statement, ast.If) and ast.unparse(statement.test) == "__name__ == '__main__'"
        body += statement.body if guarded and isinstance(statement, ast.If) else [statement]
    tree.body = body
    return tree


def _split_future(statements: list[ast.stmt]) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """The imports from ``__future__``, which come first in a file, and the other statements."""
    future: list[ast.stmt] = [
        each for each in statements if isinstance(each, ast.ImportFrom) and each.module == "__future__"
    ]
    return future, [each for each in statements if each not in future]


def _split(statements: list[ast.stmt]) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Definitions at the beginning, which stay outside of the function that is a rank, and what follows."""
    count = next((i for i, each in enumerate(statements) if not _defines(each)), len(statements))
    return statements[:count], statements[count:]


def _defines(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assign | ast.Expr):
        try:
            ast.literal_eval(statement.value)
        except ValueError:
            return False
        return True
    return isinstance(statement, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef)


def _names_bound(statements: list[ast.stmt]) -> set[str]:
    """The names that statements bind in their own scope, which is the module's in the program."""
    found: set[str] = set()
    waiting: list[ast.AST] = [*statements]
    while waiting:
        match node := waiting.pop():
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
                continue
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                continue
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found |= {each.asname or each.name.partition(".")[0] for each in names}
            case ast.Name(id=name, ctx=ast.Store()) | ast.ExceptHandler(name=str(name)):
                found.add(name)
        waiting += ast.iter_child_nodes(node)
    return found - {"*"}
