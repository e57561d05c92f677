"""The JVM kit against Publishers that read from a gateway: one test here for each test there."""

import pytest

from tests.conformance.jvm.conftest import Verdicts
from tests.conformance.jvm.glue import assert_as_expected, each_test_of_the_kit
from tests.conformance.jvm.needs import require_kit

require_kit()

from tests.conformance.jvm import remote  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@each_test_of_the_kit(remote.__name__, "PUBLISHERS", remote.PUBLISHERS)
def test_publisher(place: str, method: str, verdicts: Verdicts) -> None:
    assert_as_expected(place, method, verdicts.of(place, method))
