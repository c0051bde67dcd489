"""Print the JSON Schema of the document that a command writes with --json.

COMMAND is one of the commands with a typed document. The schema is made from the type that the command writes, so it is
never behind. Fields are added without a new version; the field `schema` of a document is its version.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib import import_module
from typing import Any

import msgspec

from dynadiag.errors import DynadiagError

DOCUMENTS = {
    "bisect": ("dynadiag.bisection.document", "BisectDocument"),
    "caches": ("dynadiag.render.cache_report", "CachesDocument"),
    "check": ("dynadiag.render.check_report", "CheckDocument"),
    "compare": ("dynadiag.compare.comparison_report", "CompareDocument"),
    "diff": ("dynadiag.render.diff", "ComparisonDocument"),
    "explain": ("dynadiag.render.json_document", "ExplainDocument"),
    "fix": ("dynadiag.fixes.fix_report", "FixDocument"),
    "kernels": ("dynadiag.render.kernels", "KernelsDocument"),
    "minify": ("dynadiag.minify.minify_result", "MinifyDocument"),
    "prune": ("dynadiag.commands.prune", "PruneDocument"),
    "values": ("dynadiag.render.values", "ValuesDocument"),
    "triage": ("dynadiag.triage.document", "TriageDocument"),
}


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("command", metavar="COMMAND", help=", ".join(DOCUMENTS))


def run(args: argparse.Namespace) -> int:
    sys.stdout.write(json.dumps(schema_of(args.command), indent=2) + "\n")
    return 0


def schema_of(command: str) -> dict[str, Any]:
    """The JSON Schema of a command's document. Raises `DynadiagError` for a command that has none."""
    if command not in DOCUMENTS:
        raise DynadiagError(f"schema: {command[:100]} has no document; these have: {', '.join(DOCUMENTS)}")
    module, name = DOCUMENTS[command]
    schema = msgspec.json.schema(getattr(import_module(module), name))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"dynadiag {command} --json",
        **schema,
    }
