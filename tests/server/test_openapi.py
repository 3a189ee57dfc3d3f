"""The OpenAPI document held against the server: what schemathesis sends, valid or not, is answered as declared."""

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from tests.server.conftest import Served

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
CHECKS += [negative_data_rejection, ignored_auth]
EXAMPLES = 3


def test_every_route_answers_as_its_document_says(served: Served) -> None:
    schema = schemathesis.openapi.from_url(f"{served.address}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) == 20
    for operation in operations:
        _hold(operation, {"Authorization": f"Bearer {served.anybody.secret}"})


def _hold(operation: schemathesis.schemas.APIOperation, headers: dict[str, str]) -> None:
    @settings(max_examples=EXAMPLES, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def hold(case: schemathesis.Case) -> None:
        case.call_and_validate(headers=headers, checks=CHECKS)

    hold()
