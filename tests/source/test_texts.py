"""Every text file is finished, ends properly and speaks of the project alone."""

import re

from tests.source.repository import texts

# The brackets keep this file free of what it looks for.
UNFINISHED = re.compile(r"\b(?:TOD[O]|FIXM[E])\b")
MACHINE_PATH = re.compile(r"(?<![\w.}])/(?:wor[k]|roo[t]|hom[e]|User[s])/")
REGISTRY_HOST = re.compile(
    r"pyp[i]\.(?:org|python)|pythonhoste[d]\.|npmj[s]\.|repo1?\.mave[n]|central\.sonatyp[e]", re.IGNORECASE
)


def places(pattern: re.Pattern[str]) -> str:
    """Return where the pattern is found, one place to a line."""
    return "\n".join(
        f"{path}:{number}: {line.strip()}"
        for path, text in texts()
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    )


def test_nothing_is_left_for_later() -> None:
    assert places(UNFINISHED) == ""


def test_no_path_of_a_machine_is_named() -> None:
    assert places(MACHINE_PATH) == ""


def test_no_package_registry_is_named() -> None:
    assert places(REGISTRY_HOST) == ""


def test_every_text_ends_with_one_newline() -> None:
    wrong = [str(path) for path, text in texts() if text and not re.search(r"[^\n]\n\Z", text)]

    assert "\n".join(wrong) == ""
