"""Rules for the whole product: which imports load which packages, and that stdout is data."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "numpy", "triton", "textual", "rich", "networkx", "minifier", "tui")


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
