"""Serve the commands and recordings to an agent, over the Model Context Protocol on stdin and stdout.

Each command is a tool, with its options as arguments and its JSON as the result. Recordings are resources: their
report, SQL on their tables, graphs and kernels. Long work reports progress and can be cancelled. A program is run only
by a call that says run=true. For a client that reads a file of servers:

    {"mcpServers": {"dynadiag": {"command": "dynadiag", "args": ["mcp"]}}}

It needs the extra: pip install 'dynadiag[mcp]'
"""

from __future__ import annotations

import argparse
from importlib import import_module

from dynadiag.errors import DynadiagError


def prepare_parser(_parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command: it has none."""


def run(_args: argparse.Namespace) -> int:
    try:
        import mcp  # noqa: F401 - whether it is installed
    except ImportError as error:
        raise DynadiagError("mcp: the package mcp is missing: pip install 'dynadiag[mcp]'") from error
    import_module("dynadiag.mcp.server").serve()  # by name, because the server stands above the commands
    return 0
