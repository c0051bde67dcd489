"""The table `link`: written with a recording, for other logs on demand, and equal to what is read from it."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dynadiag.kernels import generated_modules, import_with_links, module_links, open_with_links
from dynadiag.recording.fold import fold
from dynadiag.recording.import_export import export_log
from dynadiag.recording.journal import Journal
from tests.kernels.link_index import LinkIndex
from tests.kernels.recorded import recorded

_MODULE = """# AOT ID: ['0_inference']
triton_poi_fused_0 = async_compile.triton('triton_poi_fused_0', '''
def triton_poi_fused_0(in_ptr0, out_ptr0):
    tmp0 = tl.load(in_ptr0 + (x0), None)
    tmp1 = tl_math.sin(tmp0)
    tl.store(out_ptr0 + (x0), tmp1, None)
''')

    def call(self, args):
        triton_poi_fused_0.run(arg0_1, buf0, 16, stream=stream0)
        return (buf0, )
"""


@pytest.mark.parametrize("language", ["cpp", "triton"])
def test_a_recording_has_the_links_of_each_of_its_modules(language: str) -> None:
    with open_with_links(recorded(language)) as recording:
        found = generated_modules(recording)
        assert len(found) > 10
        for unit in found:
            assert recording.links(unit.event) == module_links(unit)
        assert recording.links() == tuple(link for unit in found for link in module_links(unit))


def test_a_log_from_elsewhere_gets_links_where_they_are_asked_for(tmp_path: Path) -> None:
    log, made = tmp_path / "a.log", tmp_path / "a.dynadiag"
    export_log(recorded("cpp"), log)
    log.write_bytes(b"\n".join(line for line in log.read_bytes().split(b"\n") if b'"dynadiag_origins"' not in line))
    import_with_links(log, made)
    with open_with_links(made) as recording:
        links = recording.links()
    assert {link.how for link in links} >= {"dataflow", "aligned", "graph"}
    computing = [link for link in links if link.role in ("compute", "load", "store")]
    assert sum(link.to_line is not None for link in computing) >= 0.95 * len(computing)


def test_that_there_is_no_mapping_is_a_row(tmp_path: Path) -> None:
    """A module whose graph is not in the log: its lines are there, and lead nowhere."""
    journal = Journal.create(tmp_path / "log")
    journal.append({"inductor_output_code": {}, "frame_id": 0, "frame_compile_id": 0}, _MODULE)
    journal.close()
    import_with_links(tmp_path / "log", tmp_path / "a.dynadiag")
    with open_with_links(tmp_path / "a.dynadiag") as recording:
        (call,) = recording.links()
    assert (call.document, call.role, call.name) == ("module", "call", "triton_poi_fused_0")
    assert (call.to_document, call.to_line, call.how) == ("graph", None, "none")
    assert not LinkIndex([call]).nodes("module", call.line)


def test_the_table_answers_in_both_directions() -> None:
    """With nothing but SQL: the lines of kernels that a line of the user's becomes, and back."""
    there = """SELECT module.line, source.to_line FROM link AS module JOIN link AS source
               ON source.module = module.module AND source.document = 'graph' AND source.name = module.to_name
               WHERE module.document = 'module' AND source.to_document = 'source' AND module.role = 'compute'
               AND module.module = ?"""
    with open_with_links(recorded("cpp")) as recording:
        unit = generated_modules(recording)[0]
    index = LinkIndex(module_links(unit))
    with closing(sqlite3.connect(recorded("cpp"))) as database:
        rows = database.execute(there, (unit.event,)).fetchall()
    assert rows
    file = next(call.source_lines[0].file for call in unit.calls if call.source_lines)
    for line, source in rows:
        assert source in {place.line for place in index.source_lines("module", line)}
        assert line in index.module_lines("source", source, file)


def test_a_recording_from_before_links_is_read(tmp_path: Path) -> None:
    old = Path(shutil.copy(recorded("cpp"), tmp_path / "old.dynadiag"))
    with closing(sqlite3.connect(old, isolation_level=None)) as database:
        database.execute("DROP TABLE link")
        database.execute("PRAGMA user_version = 1")
    with open_with_links(old) as recording:
        assert recording.links() == ()
        assert generated_modules(recording)


def test_a_fold_without_kernels_has_no_links(tmp_path: Path) -> None:
    """The recording by itself knows nothing of generated code."""
    log, made = tmp_path / "a.log", tmp_path / "a.dynadiag"
    export_log(recorded("cpp"), log)
    fold(log, made)
    with open_with_links(made) as recording:
        assert recording.links() == ()
        assert recording.kernels()
