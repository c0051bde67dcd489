"""Problems as SARIF 2.1.0 (OASIS), within the limits of GitHub's code scanning.

Paths are relative to the root, columns count characters from 1, ends are exclusive. GitHub matches the results of two
runs by the fingerprint `primaryLocationLineHash`, which is made from the identity of the finding.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from os.path import relpath
from typing import Any
from urllib.parse import quote

from dynadiag import __version__
from dynadiag.check.measurement import Problem
from dynadiag.check.proved_fixes import NO_FIXES, ProvedFix, ProvedFixes
from dynadiag.check.result import CheckResult, CheckRule
from dynadiag.explanation.formatting import shorten
from dynadiag.render.clean import clean
from dynadiag.render.json_document import encode

# https://docs.github.com/code-security: results of a run. Of those only the first 5,000 are shown.
MAX_RESULTS = 25_000
MAX_BYTES = 10_000_000  # of an upload, which is compressed
_MAX_TARGETS = 20  # of a result
_MAX_TEXT = 1000  # characters of a message; GitHub shows the first lines
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "note": "note"}


def sarif_json(result: CheckResult, fixes: ProvedFixes = NO_FIXES) -> bytes:
    """The problems of a check with the proved changes for them. Known findings are results that are unchanged."""
    found = [*((each, "new") for each in result.problems), *((each, "unchanged") for each in result.known)]
    kept = found[:MAX_RESULTS]
    while _is_too_large(log := _log(result, fixes, kept, len(found) - len(kept))) and kept:
        kept = kept[: len(kept) * 3 // 4]
    return log


def _is_too_large(log: bytes) -> bool:
    return len(log) > MAX_BYTES and len(gzip.compress(log, 6, mtime=0)) > MAX_BYTES


def _log(result: CheckResult, fixes: ProvedFixes, found: Sequence[tuple[Problem, str]], left_out: int) -> bytes:
    rules = list(dict.fromkeys(CheckRule(each.rule) for each, _ in found))
    seen = Counter[str]()
    notes = [
        *result.unknown,
        *fixes.notes,
        *([f"{left_out} more results are left out: GitHub takes no more"] if left_out else []),
    ]
    run = {
        "tool": {"driver": _driver(rules)},
        "originalUriBaseIds": {"SRCROOT": {"uri": f"file://{quote(result.root.rstrip('/'))}/"}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(each, state, rules, seen, result.root, fixes.of(each)) for each, state in found],
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": _notifications(notes)}],
    }
    return encode({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _driver(rules: Iterable[CheckRule]) -> dict[str, Any]:
    return {
        "name": "dynadiag",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_rule(rule) for rule in rules],
    }


def _rule(rule: CheckRule) -> dict[str, Any]:
    name = "".join(part.capitalize() for part in rule.split("-"))
    text = rule.says
    return {
        "id": rule,
        "name": name,
        "shortDescription": {"text": text},
        "fullDescription": {"text": f"{text}."},
        "help": {"text": f"{text}. `dynadiag explain` shows it in full."},
        "defaultConfiguration": {"level": "warning" if rule.is_new else "error"},
        "properties": {"tags": ["torch.compile"]},
    }


def _result(
    item: Problem, state: str, rules: Sequence[CheckRule], seen: Counter[str], root: str, fix: ProvedFix | None
) -> dict[str, Any]:
    digest = hashlib.sha256(item.identity.encode("utf-8", "replace")).hexdigest()[:16]
    seen[digest] += 1
    # Plain text: a bracket would begin a link.
    label = f"{item.gb_id}: " if item.gb_id else ""
    why = f"\n\n{item.cause}" if item.cause and item.cause != item.text else ""
    text = clean(_cut(f"{label}{item.text}{why}"))
    result: dict[str, Any] = {
        "ruleId": item.rule,
        "ruleIndex": rules.index(CheckRule(item.rule)),
        "level": _LEVELS.get(item.severity, "warning"),
        "message": {"text": re.sub(r"([\\\[\]])", r"\\\1", text)},
        "baselineState": state,
        "partialFingerprints": {"primaryLocationLineHash": f"{digest}:{seen[digest]}"},
        "properties": {
            "identity": clean(_cut(item.identity)),
            "targets": [clean(_cut(each)) for each in item.targets[:_MAX_TARGETS]],
        },
    }
    if item.gb_id:
        result["properties"]["gb_id"] = clean(item.gb_id)
    result["locations"] = [_location(item, root)] if item.file and not item.file.startswith("<") else []
    if fix is not None:
        result["fixes"] = [_fix(fix, root)]
    return result


def _fix(fix: ProvedFix, root: str) -> dict[str, Any]:
    """A proved change. The text that it inserts is the one that was proved, to the character."""
    how = "" if fix.alone else ", together with the other changes of the search"
    by_file: dict[str, list[dict[str, Any]]] = {}
    for each in fix.replacements:
        deleted = {"startLine": each.start, "startColumn": 1, "endLine": each.end, "endColumn": 1}
        replacement: dict[str, Any] = {"deletedRegion": deleted}
        if each.text:
            replacement["insertedContent"] = {"text": each.text}
        by_file.setdefault(each.file, []).append(replacement)
    changes = [{"artifactLocation": _artifact(file, root), "replacements": found} for file, found in by_file.items()]
    text = clean(f"{_cut(fix.title)} (proved by dynadiag fix{how})")
    return {"description": {"text": text}, "artifactChanges": changes}


def _cut(text: str) -> str:
    return shorten(text, _MAX_TEXT)


def _location(item: Problem, root: str) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": _artifact(item.file or "", root)}
    if item.line:
        found = {"startLine": item.line, "endLine": item.end_line}
        if item.column is not None:
            found["startColumn"] = item.column + 1
            found["endColumn"] = None if item.end_column is None else item.end_column + 1
        place["region"] = {name: value for name, value in found.items() if value is not None}
    location: dict[str, Any] = {"physicalLocation": place}
    if item.function:
        location["logicalLocations"] = [{"fullyQualifiedName": clean(_cut(item.function)), "kind": "function"}]
    return location


def _artifact(file: str, root: str) -> dict[str, Any]:
    inside = relpath(file, root) if file.startswith("/") else file
    if inside.startswith(".."):
        return {"uri": f"file://{quote(file.encode('utf-8', 'surrogateescape'))}"}
    return {"uri": quote(inside.encode("utf-8", "surrogateescape")), "uriBaseId": "SRCROOT"}


def _notifications(texts: Iterable[str]) -> list[dict[str, Any]]:
    return [{"level": "note", "message": {"text": clean(text)}} for text in texts]
