"""Rules for the whole product: which imports load which packages, and that no name is bound twice."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import grimp
import networkx
import pytest

ROOT = Path(__file__).parent.parent
HEAVY = ("torch", "numpy", "triton", "textual", "rich", "networkx", "minifier", "tui")


def names_bound(module: ast.Module) -> list[str]:
    """The names that a module's own statements bind, as often as they do."""
    named = [node.name for node in module.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assigned = [node for node in module.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    targets = [
        target for node in assigned for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    return named + [target.id for target in targets if isinstance(target, ast.Name)]


def test_no_modules_import_each_other() -> None:
    """Imports inside of functions count too, those for type checkers do not."""
    graph = grimp.build_graph("dynadiag", "minifier", "tui", exclude_type_checking_imports=True, cache_dir=None)
    imports = networkx.DiGraph(
        (module, imported) for module in graph.modules for imported in graph.find_modules_directly_imported_by(module)
    )
    circles = [sorted(circle) for circle in networkx.strongly_connected_components(imports) if len(circle) > 1]
    assert circles == []


def test_no_package_loads_its_own_modules() -> None:
    """The browser imports in threads. Two threads may load a package and one of its modules at the same time. If the
    package loads that module too, each thread waits for the other, and one of the imports fails.
    """
    found = set()
    for init in [*ROOT.glob("dynadiag/**/__init__.py"), *ROOT.glob("tui/**/__init__.py")]:
        package = ".".join(init.parent.relative_to(ROOT).parts)
        imports = (node.module or "" for node in ast.parse(init.read_text()).body if isinstance(node, ast.ImportFrom))
        found |= {package for name in imports if f"{name}.".startswith(f"{package}.")}
    # The browser has loaded `tui.views` before it starts a thread, and never loads the rewrites.
    assert found == {"tui.views", "dynadiag.fixes.rewrites"}


def test_no_module_binds_a_name_twice() -> None:
    """Two modules that become one may have a constant of the same name: the second then counts for both."""
    files = [file for package in ("dynadiag", "minifier", "tui") for file in (ROOT / package).rglob("*.py")]
    counts = {file: Counter(names_bound(ast.parse(file.read_text()))) for file in files}
    assert len(counts) > 300
    assert not [(file, name) for file, names in counts.items() for name, count in names.items() if count > 1]


def loaded_by(code: str) -> set[str]:
    """The heavy packages that are loaded after ``code``."""
    check = f"{code}\nimport sys\nprint(*[name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    return set(done.stderr.split("\n")[-2].split())


def command(*words: str) -> str:
    return f"from dynadiag.__main__ import main\ntry:\n    main({list(words)})\nexcept SystemExit:\n    pass"


@pytest.mark.parametrize(
    "code",
    [
        "import dynadiag",
        "import dynadiag.autoload; dynadiag.autoload.start()",
        command("--help"),
        command("--version"),
        command("nonsense"),
        *(command(name, "--help") for name in ("explain", "record", "bisect", "minify", "compare", "kernels")),
        command("explain", "nothing.dynadiag"),
        command("explain", "GB0025"),
        command("import", "--help"),
        command("export", "--help"),
        command("pack", "--help"),
        command("doctor"),
        "import dynadiag.commands.explain, dynadiag.commands.doctor, dynadiag.commands.import_",
        "import dynadiag.testing.plugin",
        "import dynadiag.capture.launch, dynadiag.capture.run_metadata, dynadiag.recording.opening",
    ],
)
def test_nothing_heavy_is_loaded(code: str) -> None:
    assert loaded_by(code) == set()


def test_the_recorded_process_loads_nothing_of_ours_but_dynadiag() -> None:
    code = "import sys, torch\nbefore = set(sys.modules)\nimport dynadiag.capture.process\n"
    code += "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
    code += "assert not new & {'orjson', 'zstandard', 'sqlite3', 'networkx', 'graphviz'}, new\n"
    code += "import dynadiag.capture.graphs"
    assert loaded_by(code) <= {"torch", "numpy", "triton"}


def test_without_the_variable_the_entry_point_loads_nothing() -> None:
    check = "import sys\nimport dynadiag.autoload as a\na.start()\n"
    check += "assert not [n for n in sys.modules if n.startswith('dynadiag.') and n != 'dynadiag.autoload']"
    environment = {"PATH": "/usr/bin"}
    subprocess.run([sys.executable, "-c", check], env=environment, check=True)
