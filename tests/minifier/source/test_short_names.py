"""Short names leave a program that does the same."""

from __future__ import annotations

import contextlib
import io
import re

from minifier.source.short_names import tidied

PROGRAM = """
import math
import json
class RegionOfPage:
    hidden: int = 1
    def method(self, given):
        return self.hidden + given
def compute(hidden):
    value = RegionOfPage()
    value.hidden = hidden
    return [value.method(line_number) for line_number in range(hidden)]
def fill():
    global shared_value
    shared_value = 5
fill()
print(compute(3), shared_value, math.pi, json.dumps(1))
"""


def test_the_tidiest_form_does_the_same_with_short_names() -> None:
    """Names that are short stay: the author of the program knows them."""
    texts = [PROGRAM, next(tidied(PROGRAM))]
    printed = []
    for text in texts:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(text, "program.py", "exec"), {})
        printed.append(output.getvalue())
    assert printed[0] == printed[1]
    assert texts[1].startswith("import json\nimport math\n")
    assert "shared_value" not in texts[1]
    assert "RegionOfPage" not in texts[1]
    assert "line_number" not in texts[1]
    assert {"compute", "fill", "hidden", "value"} <= set(re.findall(r"\w+", texts[1]))


def test_a_number_goes_from_a_name_that_nothing_else_has() -> None:
    """A pass numbers what it moves into a scope with such a name; a later one may remove the other."""
    text = "x_2 = in_2 = sum_2 = y = y_2 = z_1 = transformed_2 = 7\nprint(x_2, in_2, sum_2, y, y_2, z_1)\n"
    tidy = next(tidied(text))
    assert "print(x, in_2, sum_2, y, y_2, z_1)" in tidy
    assert "transformed" not in tidy
