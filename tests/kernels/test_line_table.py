"""Line tables in the forms that the tools write."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dynadiag.kernels.line_table import PARSERS, Stage, parse_stage

_TTIR = """#loc = loc("/program/kernel.py":3:1)
#loc2 = loc("/program/kernel.py":9:20)
#loc3 = loc("/lib/triton/language/standard.py":314:5)
#loc4 = loc("tmp4"(#loc2))
#loc5 = loc(callsite(#loc3 at #loc4))
module {
  %a = tt.load %p : tensor<4xf32> loc(#loc4)
  %b = arith.addf %a, %a : tensor<4xf32> loc(#loc5)
  tt.return loc(unknown)
}
"""
_LLVM = """define void @k() !dbg !5 {
  %1 = fadd float %0, %0, !dbg !8
  %2 = fmul float %1, %1, !dbg !9
  ret void
}
!8 = !DILocation(line: 9, column: 20, scope: !5)
!9 = distinct !DILocation(line: 314, column: 5, scope: !6, inlinedAt: !8)
"""
_PTX = """.visible .entry k(
\t.loc\t1 9 20
\tadd.f32 \t%f1, %f2, %f3;
\t.loc\t2 314 5, function_name $L__info_string0, inlined_at 1 11 4
\tmul.f32 \t%f1, %f2, %f3;
$L__tmp0:
\t.file\t1 "/program/kernel.py"
\t.file\t2 "/lib/triton/language/standard.py"
"""
_SASS = """\t//## File "/program/kernel.py", line 9
        /*0000*/                   LDC R1, c[0x0][0x28] ;
\t//## File "/lib/standard.py", line 314 inlined at "/program/kernel.py", line 11
        /*0010*/                   FADD R1, R2, R3 ;
\t//## File "/lib/standard.py", line 20
        /*0020*/                   EXIT ;
"""
_OBJDUMP = """kernel.o:     file format elf64-x86-64

0000000000000000 <other>:
/program/kernel.cpp:1
   0:\tret
0000000000000010 <kernel._omp_fn.0>:
kernel._omp_fn.0():
/program/kernel.cpp:9 (discriminator 3)
  10:\tpush   %rbp
_mm512_add_ps():
/usr/include/avx512.h:12600
inlined by /torch/vec512.h:595 (operator+)
inlined by /program/kernel.cpp:11 (kernel._omp_fn.0)
  11:\tvaddps %zmm0,%zmm1,%zmm2
/usr/include/c++/12/atomic:8
  15:\tret
"""


def _sources(stage: str, text: str, file: str = "kernel.py") -> dict[str, int]:
    """Each shown line without its blanks, with its source line."""
    parsed = parse_stage(stage, text, file)
    lines = parsed.text.splitlines()
    return {" ".join(lines[line - 1].split()).rstrip(" ;"): source for line, source in parsed.lines}


def test_mlir_names_locations_below_and_above() -> None:
    assert _sources("ttir", _TTIR) == {
        "%a = tt.load %p : tensor<4xf32>": 9,
        "%b = arith.addf %a, %a : tensor<4xf32>": 9,
    }


def test_llvm_ir_counts_what_is_inlined_where_it_is_inlined() -> None:
    assert set(_sources("llir", _LLVM).values()) == {9}
    assert len(parse_stage("llir", _LLVM, "kernel.py").lines) == 2


def test_ptx_and_sass() -> None:
    assert _sources("ptx", _PTX) == {"add.f32 %f1, %f2, %f3": 9, "mul.f32 %f1, %f2, %f3": 11}
    assert list(_sources("sass", _SASS).values()) == [9, 11]


def test_machine_code_is_the_kernels_alone() -> None:
    assert "other" not in parse_stage("asm", _OBJDUMP, "kernel.cpp").text
    assert list(_sources("asm", _OBJDUMP, "kernel.cpp").values()) == [9, 11]


def test_an_unknown_stage_is_shown_as_it_is() -> None:
    assert parse_stage("new", "text", "kernel.py") == Stage("new", "text")


@given(st.sampled_from(sorted(PARSERS)), st.text(max_size=200))
def test_any_text_has_lines_within_it(stage: str, text: str) -> None:
    parsed = parse_stage(stage, text, "kernel.py")
    assert all(1 <= line <= len(parsed.text.splitlines()) for line, _ in parsed.lines)
