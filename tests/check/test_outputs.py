"""SARIF, GitHub's annotations and summary, text and JSON of a check."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dynadiag.check.baseline import Baseline, changes_of, updated_baseline
from dynadiag.check.configuration import parse_budgets
from dynadiag.check.result import CheckResult, CheckRule, after_update, check
from dynadiag.render import sarif as sarif_module
from dynadiag.render.check_report import annotation_commands, check_json, check_text, problem_headline, step_summary
from dynadiag.render.markdown import cell
from dynadiag.render.printer import Printer
from dynadiag.render.sarif import MAX_RESULTS, sarif_json
from tests.check.build import a_measurement
from tests.explanation.build import FILE
from tests.hostile import HOSTILE, assert_no_control

ROOT = Path(FILE).parent


def a_result(known: tuple[int, ...] = (3,), now: tuple[int, ...] = (3, 5)) -> CheckResult:
    baseline = updated_baseline(Baseline(), [a_measurement(known)], ROOT)
    return check([a_measurement(now)], baseline, lambda _: parse_budgets({"max-graphs": 1}, "test"), ROOT)


def hostile() -> CheckResult:
    """A result in which all text of the program is hostile."""
    run = a_measurement((3, 5))
    bad = [
        replace(
            each,
            text=HOSTILE,
            function=HOSTILE,
            cause=HOSTILE,
            shown=HOSTILE,
            file=f"/home/user/{HOSTILE}",
            gb_id=HOSTILE,
        )
        for each in run.occurrences
    ]
    run = replace(run, target=HOSTILE, occurrences=tuple(bad))
    return check([run], None, lambda _: parse_budgets({"max-graphs": 0}, "test"), ROOT)


def sarif(result: CheckResult) -> Any:
    (run,) = json.loads(sarif_json(result))["runs"]
    return run


def test_a_result_stands_at_its_place_with_characters_counted_from_one() -> None:
    run = sarif(a_result())
    assert [item["ruleId"] for item in run["results"]] == ["new-break", "max-graphs", "new-break"]
    assert [item["baselineState"] for item in run["results"]] == ["new", "new", "unchanged"]
    (place,) = run["results"][0]["locations"]
    assert place["physicalLocation"]["artifactLocation"] == {"uri": "prog.py", "uriBaseId": "SRCROOT"}
    assert place["physicalLocation"]["region"] == {"startLine": 5}
    assert place["logicalLocations"] == [{"fullyQualifiedName": "forward", "kind": "function"}]
    exact = replace(
        a_result(), problems=tuple(replace(a, column=4, end_line=5, end_column=9) for a in a_result().problems)
    )
    region = sarif(exact)["results"][0]["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 5, "endLine": 5, "startColumn": 5, "endColumn": 10}


def test_the_fingerprint_is_that_of_the_identity_alone() -> None:
    first = sarif(a_result())["results"][0]["partialFingerprints"]
    moved = replace(a_result(), problems=tuple(replace(each, line=99, text="other") for each in a_result().problems))
    assert sarif(moved)["results"][0]["partialFingerprints"] == first
    assert len({json.dumps(item["partialFingerprints"]) for item in sarif(a_result())["results"]}) == 3


@pytest.mark.parametrize("result", [a_result(), hostile(), a_result((3, 5), (3,))])
def test_the_structure_is_that_of_sarif(result: CheckResult) -> None:
    """What the specification demands of a log, and GitHub of an upload."""
    log = json.loads(sarif_json(result))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(dict.fromkeys(item["ruleId"] for item in run["results"]))
    assert {rule["id"] for rule in rules} <= {*CheckRule}
    assert run["originalUriBaseIds"]["SRCROOT"]["uri"].endswith("/")
    for item in run["results"]:
        assert rules[item["ruleIndex"]]["id"] == item["ruleId"]
        assert item["level"] in ("none", "note", "warning", "error")
        assert item["baselineState"] in ("new", "unchanged", "updated", "absent")
        assert item["message"]["text"]
        for place in item["locations"]:
            assert re.fullmatch(r"[A-Za-z0-9%/_.:+~-]+", place["physicalLocation"]["artifactLocation"]["uri"])
            assert all(number >= 1 for number in place["physicalLocation"].get("region", {}).values())


def test_results_are_as_many_as_github_takes() -> None:
    many = replace(a_result(), problems=a_result().problems[:1] * (MAX_RESULTS + 1))
    run = sarif(many)
    assert len(run["results"]) == MAX_RESULTS
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"].startswith("2 more results are left out")  # and the known one


def test_an_upload_is_as_large_as_github_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts that do not compress: results are left out from the end, those that are known first."""
    monkeypatch.setattr(sarif_module, "MAX_BYTES", 30_000)
    random = Random(0)
    (problem,) = a_result().problems[:1]
    texts = [f"{random.getrandbits(4000):x}" for _ in range(100)]
    problems = tuple(replace(problem, text=text, identity=text, targets=(text,) * 50, function=text) for text in texts)
    log = sarif_json(replace(a_result(), problems=problems))
    assert 10_000 < len(gzip.compress(log)) <= 30_000
    (run,) = json.loads(log)["runs"]
    assert [item["message"]["text"] for item in run["results"]] == [
        f"GB0124: {text}"[:999] + "…" for text in texts[: len(run["results"])]
    ]
    assert "left out" in run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]
    for item in run["results"]:
        assert len(item["properties"]["targets"]) <= 20
    assert all(len(rule["properties"]["tags"]) <= 20 for rule in run["tool"]["driver"]["rules"])


def test_annotations_are_one_command_each() -> None:
    first, second = annotation_commands(a_result()).splitlines()
    assert first == "::error title=dynadiag max-graphs::max-graphs prog.py: 3 graphs, 1 allowed"
    assert second.startswith(
        "::warning title=dynadiag new-break,file=prog.py,line=5,endLine=5::new-break[GB0124] prog.py:5"
    )


def test_the_summary_says_what_its_tables_leave_out() -> None:
    (problem,) = a_result().problems[:1]
    summary = step_summary(replace(a_result(), problems=(problem,) * 203))
    assert len([line for line in summary.splitlines() if line.startswith(f"| `{problem.rule}`")]) == 200
    assert "\n... and 3 more problems: --json has all.\n" in summary
    assert "more target" not in summary


def test_hostile_text_stays_text() -> None:
    result = hostile()
    commands = annotation_commands(result).splitlines()
    assert len(commands) == len(result.problems)
    for command in commands:
        head, _, rest = command.removeprefix("::").partition("::")
        assert head.partition(" ")[0] in ("error", "warning")
        assert "\r" not in rest
        assert not re.search(r"%(?!25|0D|0A|3A|2C)", command)
    for text in (
        annotation_commands(result),
        step_summary(result),
        check_text(result, Printer()),
        sarif_json(result).decode(),
    ):
        assert_no_control(text)
    rows = [line for line in step_summary(result).splitlines() if line.startswith("| ")]
    for row in rows:
        assert len(re.findall(r"(?<!\\)\|", row)) in (4, 5)
    assert json.loads(check_json(result))["problems"][0]["text"] == HOSTILE


@pytest.mark.parametrize("text", ["plain", "a`b", "``", "a|b", HOSTILE, ""])
def test_code_in_markdown_ends_where_it_should(text: str) -> None:
    made = cell(text)
    fence = re.match(r"`+", made)
    assert fence is not None
    assert made.endswith(fence[0])
    assert fence[0] not in made[len(fence[0]) : -len(fence[0])]
    assert "\n" not in made


def test_the_text_leads_with_the_verdict_and_names_what_is_gone() -> None:
    assert check_text(a_result(), Printer()).startswith("failed: 2 problems in 1 target, 1 known\n")
    item = a_result().problems[0]
    named = replace(item, function="step", text="step: x.size()[0] changed")
    assert problem_headline(named, "/").endswith(f":{item.line}: step: x.size()[0] changed")
    assert problem_headline(replace(named, text="Call to it"), "/").endswith(f":{item.line} in step: Call to it")
    passed = check_text(replace(a_result((3, 5), (3,)), problems=()), Printer())
    assert passed.startswith("ok: nothing new in 1 target, 1 known, 1 gone\n")
    assert "gone: 1; --update drops them" in passed


def test_a_first_check_says_how_to_begin() -> None:
    result = check([a_measurement((3,))], None, lambda _: parse_budgets({}, "test"), ROOT)
    assert "note: without a baseline every finding is new: --update writes one" in check_text(result, Printer())
    assert "without a baseline" not in check_text(a_result(), Printer())


def test_a_finding_of_two_lines_is_one_that_is_known() -> None:
    run = a_measurement((3, 4))
    baseline = updated_baseline(Baseline(), [run], ROOT)
    result = check([run], baseline, lambda _: parse_budgets({}, "test"), ROOT)
    assert len(baseline.known) == result.known_findings == 1
    assert check_text(result, Printer()).startswith("ok: nothing new in 1 target, 1 known\n")


def test_an_update_tells_what_it_added_and_dropped() -> None:
    before, run = updated_baseline(Baseline(), [a_measurement((3,))], ROOT), a_measurement((5,))
    after = updated_baseline(before, [run], ROOT)
    result = check([run], after, lambda _: parse_budgets({}, "test"), ROOT)
    text = check_text(after_update(result, changes_of("known.json", before, after)), Printer())
    assert text.startswith("ok: nothing new in 1 target, 1 known, 1 dropped\n")
    assert "dropped: 1\n    break[GB0059]" in text
    assert text.endswith("baseline: 1 known finding in known.json, 1 added, 1 dropped\n")


def test_the_document_has_what_the_contract_names() -> None:
    document = json.loads(check_json(a_result()))
    assert document["ok"] is False
    (new, over), (old,) = document["problems"], document["known"]
    assert (new["rule"], new["gb_id"], new["file"], new["line"], new["function"]) == (
        "new-break",
        "GB0124",
        FILE,
        5,
        "forward",
    )
    assert over["text"] == "3 graphs, 1 allowed"
    assert old["identity"] == "break GB0059 forward: print(_0)"
    assert {"schema", "dynadiag", "torch"} <= set(document)
