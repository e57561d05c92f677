"""The page about this layer tells the truth: its programs run and print what it says they print."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "spec.md"


def test_the_programs_print_what_the_page_says(capsys):
    blocks = re.findall(r"```(python|text)\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    namespace = {}
    assert [kind for kind, _ in blocks] == ["python", "text"] * (len(blocks) // 2)
    for kind, block in blocks:
        if kind == "python":
            exec(block, namespace)
        else:
            assert capsys.readouterr().out == block
