"""The OpenAPI document held against the server: what schemathesis sends, valid or not, is answered as declared.

It is imported in the test, because every worker of a session collects every file.
"""

from typing import TYPE_CHECKING

from hypothesis import HealthCheck, Phase, given, settings

from tests.server.conftest import Served

if TYPE_CHECKING:
    from schemathesis import Case
    from schemathesis.schemas import APIOperation

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "ignored_auth",
)
EXAMPLES = 3


def test_every_route_answers_as_its_document_says(served: Served) -> None:
    import schemathesis

    schema = schemathesis.openapi.from_url(f"{served.address}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) == 24
    for operation in operations:
        _hold(operation, {"Authorization": f"Bearer {served.anybody.secret}"})


def _hold(operation: "APIOperation", headers: dict[str, str]) -> None:
    from schemathesis.checks import CHECKS as KNOWN

    checks = KNOWN.get_by_names(CHECKS)

    @settings(max_examples=EXAMPLES, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def hold(case: "Case") -> None:
        case.call_and_validate(headers=headers, checks=checks)

    hold()
