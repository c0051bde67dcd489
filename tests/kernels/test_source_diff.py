"""The difference of two sources is by statements, independent of the names of values."""

from __future__ import annotations

from dynadiag.kernels.kernel_diff import diff_sources

_BEFORE = """    tmp0 = tl.load(in_ptr0)
    tmp1 = triton_helpers.maximum(0, tmp0)
    tmp2 = libdevice.exp(tmp1)
    tmp3 = tmp2 - tmp1
    tl.store(out_ptr0, tmp3)
"""
_AFTER = """    tmp0 = tl.load(in_ptr0)
    tmp1 = tl.load(in_ptr1)
    tmp2 = tl.sigmoid(tmp0)
    tmp3 = libdevice.exp(tmp2)
    tmp4 = tmp3 - tmp2
    tl.store(out_ptr0, tmp4)
"""


def _changed(before: str, after: str) -> list[str]:
    lines = diff_sources(before, after, ("before", "after")).splitlines()
    return [line for line in lines[2:] if line[0] in "+-"]


def test_what_only_has_another_number_is_the_same() -> None:
    assert _changed(_BEFORE, _AFTER) == [
        "-    tmp1 = triton_helpers.maximum(0, tmp0)",
        "+    tmp1 = tl.load(in_ptr1)",
        "+    tmp2 = tl.sigmoid(tmp0)",
    ]
    assert diff_sources(_BEFORE, _BEFORE.replace("tmp3", "tmp9"), ("before", "after")) == ""


def test_another_operand_is_a_difference() -> None:
    changed = _changed(_BEFORE, _BEFORE.replace("tmp2 - tmp1", "tmp1 - tmp2"))
    assert changed == ["-    tmp3 = tmp2 - tmp1", "+    tmp3 = tmp1 - tmp2"]
    changed = _changed(_BEFORE, _BEFORE.replace("out_ptr0, tmp3", "out_ptr0, tmp2"))
    assert changed == ["-    tl.store(out_ptr0, tmp3)", "+    tl.store(out_ptr0, tmp2)"]


def test_a_value_that_is_made_twice_is_that_of_its_last_statement() -> None:
    """A C++ loop has its statements again for the rest of the elements."""
    loop = "auto tmp0 = in_ptr0[x];\nauto tmp1 = std::sin(tmp0);\nout_ptr0[x] = tmp1;\n"
    shifted = loop.replace("tmp1", "tmp2").replace("std::sin", "auto_sin")
    assert _changed(loop + loop, loop + shifted) == ["-auto tmp1 = std::sin(tmp0);", "+auto tmp2 = auto_sin(tmp0);"]


def test_a_long_dictionary_is_compared_item_by_item() -> None:
    line = f"    inductor_meta={{'num_load': 1, 'signature': {{'a': '{'x' * 150}', 'b': 2}}, 'other': [1, 2]}},\n"
    assert _changed(line, line.replace("'b': 2", "'b': 3")) == ["-            'b': 2,", "+            'b': 3,"]
    assert _changed("    meta={'a': 1},", "    meta={'a': 2},") == ["-    meta={'a': 1},", "+    meta={'a': 2},"]
