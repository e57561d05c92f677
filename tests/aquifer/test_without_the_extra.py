"""Without its extra the layer says what to install; with it, it is imported as a whole."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("missing", ["zmq", "msgspec"])
def test_an_import_without_the_extra_says_what_to_install(missing: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; import penstock.aquifer"

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == (
        "ImportError: penstock.aquifer needs pyzmq and msgspec: pip install 'penstock-streams[aquifer]'"
    )


def test_an_import_does_not_need_arrow_or_spark() -> None:
    program = (
        "import sys; sys.modules['pyarrow'] = sys.modules['pyspark'] = None; "
        "from penstock.aquifer import Gateway, AquiferPublisher, SqliteJournal"
    )

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr
