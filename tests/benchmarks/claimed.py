"""What holds for the claims about every question."""

from benchmarks.claims import CLAIMS
from benchmarks.questions import ask


def assert_claims_have_alternatives(name: str) -> None:
    """Each alternative of a question has a base, and each claim is about alternatives that there are."""
    with ask(name) as question:
        names = {alternative.name for alternative in question.alternatives}
        bases = {question.base_of(alternative) for alternative in question.alternatives}

    assert question.name == name
    assert bases <= names
    for claim in CLAIMS:
        if claim.question == name:
            assert {claim.of, claim.to} <= names
