"""The HTML page: what it shows, that it loads nothing, and that foreign text stays text, also in a browser."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from dynadiag.__main__ import main
from dynadiag.caches.start_phases import TimedSection
from dynadiag.diff.comparison import compare_recordings
from dynadiag.explanation.search import SearchVerdict
from dynadiag.kernels import stages
from dynadiag.kernels.line_table import Stage
from dynadiag.kernels.read_modules import kernel_calls
from dynadiag.recording.journal import Journal
from dynadiag.recording.opening import fold_in_place, open_recording
from dynadiag.recording.store import save_derived
from dynadiag.render.clean import clean
from dynadiag.render.page.model import _sentence
from dynadiag.render.page.page import flame_boxes
from dynadiag.render.page.stages import Redaction
from dynadiag.render.report import report
from tests.commands.build import CONTEXT, recording
from tests.job import build as ranks
from tests.tui import build
from tests.webdriver import CHROMIUM, DRIVER, Browser

MARKUP = "<img src=x onerror=alert(1)></script></pre><b>\"'`{{ 7*7 }}\x1b[31m\u202e::error::"
SECRETS = ("hunter2", "secret-host", "/home/alice", "alice", "Alice", "SECRET_KEY", "sk-12345", "classified")
VOID = {"meta", "input", "br", "img", "link", "hr"}


class _Page(HTMLParser):
    """The elements of a page, its text without scripts, and every attribute."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.ids: list[str] = []
        self.scripts: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] == ["script"]:
            self.scripts.append(data)
        elif self._open[-1:] != ["style"]:
            self.text += data


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def page(tmp_path: Path, text: str = "f", *options: str, file: str = "/somewhere/program.py") -> str:
    (tmp_path / "in.dynadiag").unlink(missing_ok=True)
    recording(tmp_path / "in.dynadiag", text, file=file, wrong=True)
    assert main(["report", "--force", "-o", "out.html", *options, "in.dynadiag"]) == 0
    return (tmp_path / "out.html").read_text()


def blocks(text: str) -> dict[str, str]:
    found = re.findall(r'<script type="application/gzip" id="block-([^"]+)">([^<]*)</script>', text)
    return {name: gzip.decompress(base64.b64decode(packed)).decode() for name, packed in found}


def test_the_counts_and_findings_are_those_of_the_document(tmp_path: Path) -> None:
    parsed = _Page(page(tmp_path))
    with open_recording(tmp_path / "in.dynadiag") as made:
        document = json.loads(report(made).to_json())
    words = " ".join(parsed.text.split())
    for name in ("graph", "break", "recompile"):
        assert re.search(rf"{name}s\s*{document[f'{name}_count']}(?!\d)", words)
    assert f"Findings ({len(document['findings'])})" in words
    for item in document["findings"]:
        assert " ".join(item["title"].split()) in words
    anchors = {each for each in parsed.ids if re.fullmatch(r"(break|recompile|finding)-\d+", each)}
    assert {"break-0", "recompile-0"} <= anchors
    assert len([each for each in anchors if each.startswith("finding")]) == len(document["findings"])


def test_links_lead_to_what_is_there(tmp_path: Path) -> None:
    parsed = _Page(page(tmp_path))
    assert len(parsed.ids) == len(set(parsed.ids))
    for name, value in parsed.attributes:
        if name == "href" and not (value or "").startswith("#line="):
            assert (value or "").removeprefix("#") in parsed.ids


def test_large_texts_stand_in_blocks(tmp_path: Path) -> None:
    text = page(tmp_path)
    found = blocks(text)
    assert found["source-0"].startswith("import torch\n")
    assert any(name.startswith("graph-") for name in found)
    assert any("extern_kernels.mm" in content for content in found.values())
    parsed = _Page(text)
    for kind in ("data-block", "data-stages", "data-document"):
        named = {value for name, value in parsed.attributes if name == kind}
        assert named
        assert named <= found.keys()


def test_processes_that_share_the_work_make_the_same_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_here = page(tmp_path)
    monkeypatch.setattr("dynadiag.render.page.page._MIN_PARALLEL", 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    assert page(tmp_path) == made_here


def test_the_page_asks_for_nothing_and_its_policy_allows_nothing_else(tmp_path: Path) -> None:
    text = page(tmp_path)
    parsed = _Page(text)
    policies = [value or "" for name, value in parsed.attributes if name == "content"]
    (content,) = [value for value in policies if "default-src" in value]
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    for kind, body in (("style-src", style[1]), ("script-src", parsed.scripts[-1])):
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in content
    assert content.startswith("default-src 'none';")
    assert {name for name, _ in parsed.attributes} & {"src", "style", "onclick", "onerror", "srcset", "action"} == set()
    assert not re.search(r"https?://|url\(|@import|fetch\(|XMLHttpRequest|innerHTML|eval\(", text)


@pytest.mark.parametrize("options", [(), ("--redact",)])
def test_hostile_text_stays_text(options: tuple[str, ...], tmp_path: Path) -> None:
    plain = _Page(page(tmp_path, "f", *options))
    text = page(tmp_path, MARKUP, *options, file=f"/x/{MARKUP.replace('/', '')}.py")
    hostile = _Page(text)
    assert set(hostile.tags) == set(plain.tags)
    assert {name for name, _ in hostile.attributes} == {name for name, _ in plain.attributes}
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "49" not in hostile.text.replace(MARKUP, "")
    assert all("\x1b" not in content for content in blocks(text).values())
    assert bool(options) or f"{MARKUP[:20]}" in json.loads(blocks(text)["flame"])["boxes"][0][4]


def with_assembly(path: Path, text: str) -> None:
    """Save a stage of the first kernel, as a stranger could: with this text, and another one of this name."""
    with open_recording(path) as made:
        call = next(call for call in kernel_calls(made) if call.definition)
    assert call.definition is not None
    key = stages._key(call.language, call.name, call.definition.source, "native")
    rows = ((1, 1), (2, 1 << 40), (-3, -3))
    saved = stages.CompiledStages("native", {name: Stage(name, text, rows) for name in ("asm", text)})
    assert save_derived(path, key, msgspec.to_builtins(saved))


@pytest.mark.parametrize("options", [(), ("--redact",)])
def test_assembly_that_is_recorded_is_shown_as_text(options: tuple[str, ...], tmp_path: Path) -> None:
    plain = _Page(page(tmp_path, "f", *options))
    with_assembly(tmp_path / "in.dynadiag", f"mov\n{MARKUP}")
    assert main(["report", "--force", "-o", "out.html", *options, "in.dynadiag"]) == 0
    text = (tmp_path / "out.html").read_text()
    shown, found = _Page(text), blocks(text)
    assert set(shown.tags) == set(plain.tags)
    assert "\x1b" not in text
    assert (set(shown.ids) - set(plain.ids)) == (set() if options else {"kernel-0-asm", "block-kernel-0-asm"})
    if not options:
        assert found["kernel-0-asm"] == clean(f"mov\n{MARKUP}")
        assert {"kernel-0": 3}.items() <= json.loads(found["stages-0"])["places"].items()


def test_the_boxes_of_a_flame_graph_stand_above_what_they_are_made_of() -> None:
    def section(name: str, start: float, end: float) -> TimedSection:
        return TimedSection(name, "tracing", "0/0", 0.0, start, end, outermost=False)

    times = {"a": (10, 20), "b": (10, 14), "c": (12, 13), "d": (15, 22), "e": (100, 101)}
    made = [section(name, *ends) for name, ends in times.items()]
    boxes = {box.section.name: (box.level, box.start) for box in flame_boxes(reversed(made))}
    assert boxes == {"a": (0, 0.0), "b": (1, 0.0), "c": (2, 2.0), "d": (1, 5.0), "e": (0, 12.0)}


def test_a_browser_zooms_into_the_flame_graph_with_the_keyboard(tmp_path: Path, browser: Browser) -> None:
    made = Journal.create(tmp_path / "times.dynadiag")
    made.append({"dynadiag_run": {"target": "t.py"}})
    made.append({"dynamo_start": {"stack": []}, **CONTEXT})
    names = ("outer", "left", "left", "right", "right", "outer")
    for name, kind, seconds in zip(names, "BBEBEE", (0, 1, 2, 2, 4, 4), strict=True):
        made.append({"chromium_event": {}}, json.dumps({"name": name, "ph": kind, "ts": seconds * 1e6}))
    made.close()
    fold_in_place(tmp_path / "times.dynadiag")
    assert main(["report", "-o", "times.html", "times.dynadiag"]) == 0
    browser.load(f"file://{tmp_path}/times.html#flame")
    browser.wait("document.querySelectorAll('svg.slice').length === 3")
    browser.run("document.querySelector('svg.slice').focus()")
    browser.press("\ue015", "\ue014", "\ue007")  # down, right, enter
    widths = "return [...document.querySelectorAll('svg.slice')].map((each) => each.getAttribute('width'))"
    assert browser.run(widths) == ["100%", "100%"]  # what it is in, and itself
    assert browser.run("return document.querySelector('.status').textContent").startswith("right: 2.00 s")
    browser.press("\ue00c")  # escape
    assert len(browser.run(widths)) == 3
    assert browser.log() == []


def secret_recording(path: Path) -> Path:
    """A recording with a secret wherever the program's author, host or user can leave one."""
    made = Journal.create(path)
    context = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    file, function = "/home/alice/classified/train.py", "classified_step"
    run = {"target": file, "argv": [file, "hunter2"], "cwd": "/home/alice", "host": "secret-host"}
    run |= {"torch": "2.13.0", "environment": {"TORCHINDUCTOR_CACHE_DIR": "/home/alice/hunter2"}}  # type: ignore[dict-item]
    guarded = "TREE_GUARD_MANAGER:\n+- RootGuardManager\n| +- EQUALS_MATCH: L['hunter2'] == 'sk-12345'  # alice\n"
    frame = {"file": file, "line": 2, "function": function}
    told = {**frame, "line": 3, "column": 0, "gb_type": "hunter2", "explanation": "hunter2"}
    failed = {"co_filename": file, "fail_type": "hunter2", "fail_reason": "sk-12345"}
    reason = {"name": "dynamo_graph_break_reason", "encoding": "string"}
    events: list[tuple[dict[str, object], str | None]] = [
        ({"dynadiag_frame": frame}, None),
        ({"dynadiag_source": {"file": file}}, f"SECRET_KEY = 'sk-12345'\ndef {function}(x):\n    pass\n"),
        ({"dynadiag_break": told}, None),
        ({"artifact": reason}, f"hunter2 at {file}:3"),
        ({"artifact": {"name": "recompile_reasons"}}, json.dumps(["0/0: L['alice'] == 'sk-12345'"])),
        ({"dynamo_output_graph": {"sizes": {}}}, f"# {file} SECRET_KEY\nalice_gate = self.classified_weight"),
        ({"dynamo_cpp_guards_str": {}}, guarded),
        (
            {"inductor_output_code": {"filename": file}},
            "# alice: sk-12345\nhunter2 = async_compile.cpp_pybinding([], '''\n// classified\n''')",
        ),
        ({"chromium_event": {}}, json.dumps({"name": "hunter2", "ph": "B", "ts": 1e6})),
        ({"chromium_event": {}}, json.dumps({"name": "hunter2", "ph": "E", "ts": 2e6})),
        ({"compilation_metrics": failed}, None),
    ]
    made.append({"dynadiag_run": run})
    for metadata, payload in events:
        made.append({**metadata, **context}, payload)
    ended = {"uncaught": "classified.AliceError", "message": "hunter2 of alice", "stack": [frame], "seconds": 1.0}
    made.append({"dynadiag_end": ended})
    made.append({"dynadiag_exit": {"code": 1, "notes": ["hunter2 of alice"]}})
    made.close()
    fold_in_place(path)
    return path


def test_redacted_pages_hold_no_secret(tmp_path: Path) -> None:
    secret_recording(tmp_path / "alice-hunter2.dynadiag")
    assert main(["report", "-o", "open.html", "alice-hunter2.dynadiag"]) == 0
    assert main(["report", "-o", "redacted.html", "--redact", "alice-hunter2.dynadiag"]) == 0
    shown = (tmp_path / "open.html").read_text()
    shown += "".join(blocks(shown).values())
    planted = [secret for secret in SECRETS if secret in shown]
    assert len(planted) >= 5  # they are there to be left out
    redacted = (tmp_path / "redacted.html").read_text()
    assert [secret for secret in SECRETS if secret in redacted] == []
    assert blocks(redacted) == {}
    assert "redacted" in redacted
    assert len(_Page(redacted).ids) > 5


def test_several_recordings_have_anchors_of_their_own(tmp_path: Path) -> None:
    recording(tmp_path / "a.dynadiag")
    recording(tmp_path / "b.dynadiag")
    assert main(["report", "-o", "out.html", "a.dynadiag", "b.dynadiag"]) == 0
    parsed = _Page((tmp_path / "out.html").read_text())
    assert len(parsed.ids) == len(set(parsed.ids))
    assert {"break-0", "r2-break-0"} <= set(parsed.ids)


def a_search(path: Path, text: str) -> Path:
    """The recording of a bisection that found a lowering."""
    made = Journal.create(path)
    made.append({"dynadiag_run": {"target": text, "argv": [text]}})
    made.append({"dynadiag_search": {"command": "bisect", "options": []}})
    for status in ("same", "pass", text):
        outcome = {"status": status, "label": f"off: {text}", "signature": {"type": text, "message": text}}
        trial = {"pid": 1, "candidate": "{}", "outcome": json.dumps(outcome), "seconds": 1.0}
        made.append({"dynadiag_trial": trial})
    culprits = [{"class": "lowering", "name": text}]
    made.append({"dynadiag_verdict": {}}, json.dumps({"verdict": "found", "rung": "inductor", "culprits": culprits}))
    made.append({"dynadiag_exit": {"code": 0}})
    made.close()
    fold_in_place(path)
    return path


def test_a_page_of_two_recordings_has_what_diff_says(tmp_path: Path) -> None:
    recording(tmp_path / "a.dynadiag", "f")
    recording(tmp_path / "b.dynadiag", MARKUP)
    plain = _Page(page(tmp_path))
    assert main(["report", "-o", "out.html", "--force", "a.dynadiag", "b.dynadiag"]) == 0
    text = (tmp_path / "out.html").read_text()
    parsed = _Page(text)
    with open_recording(tmp_path / "a.dynadiag") as before, open_recording(tmp_path / "b.dynadiag") as after:
        found = compare_recordings(before, after)
    assert found.differences
    words = " ".join(parsed.text.split())
    assert "1: a against 2: b" in words
    for item in found.differences:
        assert " ".join(clean(item.text).split()) in words
    assert "r2-diff" in parsed.ids
    assert set(parsed.tags) <= {*plain.tags, "macro"}
    assert "\x1b" not in text
    assert main(["report", "-o", "out.html", "--force", "a.dynadiag", "a.dynadiag"]) == 0
    assert "The same was compiled in both runs." in (tmp_path / "out.html").read_text()


def test_a_redacted_comparison_holds_no_secret(tmp_path: Path) -> None:
    secret_recording(tmp_path / "alice-hunter2.dynadiag")
    recording(tmp_path / "b.dynadiag")
    assert main(["report", "-o", "out.html", "--redact", "b.dynadiag", "alice-hunter2.dynadiag"]) == 0
    text = (tmp_path / "out.html").read_text()
    assert "r2-diff" in _Page(text).ids
    assert [secret for secret in SECRETS if secret in text] == []


def test_the_values_of_each_call_with_the_wrong_ones_open(tmp_path: Path) -> None:
    path = build.recording(tmp_path, build.program_with_values())
    assert main(["report", "-o", "open.html", str(path)]) == 0
    assert main(["report", "-o", "redacted.html", "--redact", str(path)]) == 0
    text = (tmp_path / "open.html").read_text()
    assert _Page(text).text.count("inference 0/0, call ") == 2
    assert re.search(r'<tr class="result-fail"><td><code>z = relu</code></td>.*<td>WRONG</td><td>▁!</td></tr>', text)
    assert 'id="values"' not in (tmp_path / "redacted.html").read_text()


def test_where_ranks_diverge_leads_their_page(tmp_path: Path) -> None:
    ranks.rank(tmp_path, 0, ranks.compiled())
    ranks.rank(tmp_path, 1, ranks.compiled(), ranks.compiled("0/1", again=("4", "5")))
    assert main(["report", "-o", "out.html", "."]) == 0
    parsed = _Page((tmp_path / "out.html").read_text())
    words = " ".join(parsed.text.split())
    assert "2 recordings of one job Rank 1 compiles f again (compile 0/1), rank 0 does not: x.size()[0]" in words
    assert parsed.ids.index("divergence") < parsed.ids.index("overview")
    assert main(["report", "--force", "-o", "out.html", "--redact", "."]) == 0
    assert "The ranks diverge: recompile." in _Page((tmp_path / "out.html").read_text()).text


def test_a_search_is_its_answer_and_its_trials(tmp_path: Path) -> None:
    a_search(tmp_path / "in.dynadiag", "cummin")
    assert main(["report", "-o", "out.html", "in.dynadiag"]) == 0
    words = " ".join(_Page((tmp_path / "out.html").read_text()).text.split())
    assert "bisect: fails first at rung inductor; at fault: lowering cummin" in words
    assert re.search(r"1 ?off: cummin ?fails ?cummin: cummin ?1\.0 ?2 ?off: cummin ?passes", words)
    assert "Findings" not in words
    assert "{" not in words


def test_a_reduction_to_one_operation_is_told_as_one() -> None:
    verdict = SearchVerdict("reduced", level="graph", nodes_before=40, nodes_after=1, proved=True)
    assert _sentence(verdict, Redaction()) == "reduced from 40 operations to 1, proved"


def test_a_failure_of_a_search_is_told_once(tmp_path: Path) -> None:
    a_search(tmp_path / "in.dynadiag", "same")
    assert main(["report", "-o", "out.html", "in.dynadiag"]) == 0
    words = " ".join(_Page((tmp_path / "out.html").read_text()).text.split())
    assert words.count("same: same") == 1
    assert words.count("as trial 1") == 2


def test_a_redacted_search_has_no_name(tmp_path: Path) -> None:
    a_search(tmp_path / "in.dynadiag", "hunter2")
    assert main(["report", "-o", "out.html", "--redact", "in.dynadiag"]) == 0
    text = (tmp_path / "out.html").read_text()
    assert "hunter2" not in text
    assert "at fault: lowering (left out)" in text


def test_what_cannot_be_shown_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out.html").write_text("mine")
    recording(tmp_path / "in.dynadiag")
    (tmp_path / "bad.dynadiag").write_bytes(b"SQLite format 3\x00")
    (tmp_path / "prog.py").write_text("print(1)")
    for words in (["in.dynadiag"], ["--force", "bad.dynadiag"], ["--force", "prog.py"], ["--force", "no.dynadiag"]):
        assert main(["report", "-o", "out.html", *words]) == 2
        assert capsys.readouterr().err.count("\n") == 1
        assert (tmp_path / "out.html").read_text() == "mine"


def test_a_notebook_gets_a_summary_without_script(tmp_path: Path) -> None:
    recording(tmp_path / "in.dynadiag", MARKUP, wrong=True)
    with open_recording(tmp_path / "in.dynadiag") as made:
        text = report(made)._repr_html_()
    assert set(_Page(text).tags) <= {"div", "p", "strong", "table", "thead", "tbody", "tr", "th", "td", "code"}
    assert len(text) < 10_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not (CHROMIUM and DRIVER):
        pytest.skip("no Chromium and driver here: the page was not opened in a browser")
    with Browser() as made:
        yield made


def test_a_browser_shows_what_the_document_counts_and_opens_what_a_link_names(tmp_path: Path, browser: Browser) -> None:
    page(tmp_path)
    with open_recording(tmp_path / "in.dynadiag") as made:
        document = json.loads(report(made).to_json())
    browser.load(f"file://{tmp_path}/out.html#break-0")
    browser.wait("document.readyState === 'complete'")
    shown = browser.html()
    assert browser.log() == []
    assert shown.count('<details class="finding') == len(document["findings"])
    assert shown.count('<details class="compile') == len(document["compiles"])
    for name in ("graph", "break", "recompile"):
        assert re.search(rf"{name}s</dt><dd>{document[f'{name}_count']}</dd>", shown)
    (found,) = re.findall(r'<details class="finding[^>]*>(?=(?:(?!</details>).)*id="break-0")', shown, re.DOTALL)
    assert "open" in found


def test_a_browser_shows_the_line_that_a_link_names(tmp_path: Path, browser: Browser) -> None:
    """The source is unpacked, hostile text in it stays text, and nothing is logged, so that nothing was refused."""
    page(tmp_path, MARKUP)
    browser.load(f"file://{tmp_path}/out.html#line=program.py:3")
    browser.wait("document.querySelector('.row.here')")
    document = browser.html()
    assert browser.log() == []
    assert re.search(r'class="row [^"]*here" data-line="3"', document)
    assert "<img" not in document
    assert "import torch" in document


def drawn_page(tmp_path: Path) -> str:
    """The page of a program whose source line is hostile text, which a drawing has as the title of a box."""
    code = " ".join(MARKUP.split())
    graph = build.DYNAMO.replace("code: y = x.sin()\n", f"code: {code}\n        w = l_x_.cos()\n")
    events = [*build.run_events(), *build.source_events(), *build.compile_events("0/0", graph=graph)]
    build.recording(tmp_path, [*events, *build.end_events()], "drawn")
    assert main(["report", "-o", "drawn.html", "drawn.dynadiag"]) == 0
    return (tmp_path / "drawn.html").read_text()


def test_graphs_are_drawn_and_text_in_them_stays_text(tmp_path: Path) -> None:
    drawings = {name: text for name, text in blocks(drawn_page(tmp_path)).items() if "-drawing" in name}
    assert set(drawings) >= {"graph-0-drawing", "graph-0-drawing-all", "graph-1-drawing"}
    for text in drawings.values():
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(text).iter()}
        assert tags <= {"svg", "rect", "polyline", "polygon", "g", "text"}
    assert "&lt;img" in drawings["graph-0-drawing"]
    assert 'data-lines="prog.py:6"' in drawings["graph-1-drawing-all"], "as the source is called in the page"


def test_a_browser_draws_a_graph(tmp_path: Path, browser: Browser) -> None:
    drawn_page(tmp_path)
    browser.load(f"file://{tmp_path}/drawn.html#graph-0-drawing")
    browser.wait("document.querySelectorAll('g.box').length === 2")
    assert "<img" not in browser.html()
    assert browser.log() == []


def test_the_stages_of_a_compile_are_linked_through_their_source_lines(tmp_path: Path) -> None:
    found = blocks(drawn_page(tmp_path))
    stages = json.loads(found["stages-0"])
    titles = [stages["documents"][number]["title"] for number in stages["panes"]]
    assert titles == ["source", "Dynamo's graph", "graph, after passes"]
    sine = stages["keys"].index("prog.py:6")
    for block, node in (("graph-0", "y:"), ("graph-1", "sin:")):
        rows = [line for line, *keys in stages["links"][block]["lines"] if sine in keys]
        assert any(found[block].split("\n")[row - 1].lstrip().startswith(node) for row in rows)
        readable = {line.split("\t")[0] for line in found[f"{block}-readable"].split("\n")}
        assert readable & {str(row) for row in rows}
    assert "\x1b" not in json.dumps(stages, ensure_ascii=False)
    assert "\\u001b" not in json.dumps(stages)


def test_what_was_traced_before_a_failure_stands_beside_the_source(tmp_path: Path) -> None:
    events = [*build.run_events(), *build.source_events(), *build.failed_trace_events("0/0"), *build.end_events(1)]
    assert main(["report", "-o", "out.html", str(build.recording(tmp_path, events))]) == 0
    found = blocks((tmp_path / "out.html").read_text())
    stages = json.loads(found["stages-0"])
    assert [stages["documents"][number]["title"] for number in stages["panes"]] == [
        "source",
        "traced before the failure",
    ]
    assert "prog.py:7" in stages["keys"]


def test_the_panes_light_up_together_and_are_walked_with_the_keyboard(tmp_path: Path, browser: Browser) -> None:
    drawn_page(tmp_path)
    lit = "return [...document.querySelectorAll('.pane')].map((pane) => pane.querySelectorAll('.lit').length)"
    browser.load(f"file://{tmp_path}/drawn.html#graph-1")
    browser.wait("document.querySelectorAll('.pane .row').length > 5 && document.activeElement.closest('.pane')")
    assert browser.run("return document.activeElement.closest('.pane').querySelector('select').value") == "2"
    for _ in range(10):
        browser.press("\ue015")  # down, in the graph that the link names
        if sum(browser.run(lit)) >= 3:
            break
    assert all(browser.run(lit)), "the line of each pane"
    assert "prog.py:6" in browser.run("return document.querySelector('.status').textContent")
    browser.run("document.querySelector('.pane:nth-child(2) .form').focus()")
    browser.press(*"drawn")  # the form that begins so
    browser.wait("document.querySelector('.pane:nth-child(2) g.box.lit')")
    browser.press("\ue004", "\ue004", "\ue004", "\ue004", "\ue004", "\ue004")  # over the buttons to a box
    assert browser.run("return document.activeElement.localName") == "g"
    browser.press("\ue007")  # enter
    assert browser.run("return document.querySelectorAll('.here').length") == 1
    assert browser.log() == []
