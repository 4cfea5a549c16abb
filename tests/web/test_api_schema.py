"""The API does what its description says, whatever it is asked: schemathesis over HTTP against a real daemon."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis.errors import Unsatisfiable

from pipeline.web.tokens import hash_of, new_token
from tests.conftest import TIMEOUT, component, eventually
from tests.web.asking import CHANGE
from tests.web.conftest import Dashboard

STREAM = "/api/v1/stream"
MAY_BE_503 = {"/healthz", "/readyz"}
OPERATOR, VIEWER = new_token(), new_token()
TOKENS = ", ".join(
    f'{{name = "{role}", role = "{role}", hash = "{hash_of(token)}"}}'
    for role, token in (("operator", OPERATOR), ("viewer", VIEWER))
)


@pytest.fixture(scope="module")
def with_tokens(tmp_path_factory):
    """A daemon that asks for tokens; it has no model yet."""
    made = Dashboard(tmp_path_factory.mktemp("tokens"), None, more=f"tokens = [{TOKENS}]\n")
    made.token = OPERATOR
    made.start()
    eventually(lambda: made.status().get("sample"), "some sound")
    yield made
    made.close()


def is_one_label(case: Any) -> bool:
    """Return whether a single value is given for labels: in an address it is text, whatever its type, and so valid."""
    return not isinstance((case.query or {}).get("label", []), list)


def examine(url: str, headers: dict[str, str], examples: int) -> set[int]:
    """Every operation with what it asks for and with what it does not; the codes that were answered."""
    schemathesis = component("schemathesis")
    requests = component("requests")
    checks = component("schemathesis.checks")
    described = schemathesis.openapi.from_url(f"{url}/openapi.json", headers=headers)
    promises = [
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
        checks.negative_data_rejection,
    ]
    codes: set[int] = set()

    def try_out(operation: Any, mode: Any, kept: list[Any]) -> None:
        @settings(
            max_examples=examples,
            derandomize=True,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def keeps_its_promises(case: Any) -> None:
            assume(mode == schemathesis.GenerationMode.POSITIVE or not is_one_label(case))
            answer = case.call_and_validate(base_url=url, session=session, checks=kept)
            codes.add(answer.status_code)

        # What takes no arguments cannot be given wrong ones.
        with suppress(Unsatisfiable):
            keeps_its_promises()

    with requests.Session() as session:
        session.headers.update(headers)
        for found in described.exclude(path=STREAM).get_all_operations():
            operation = found.ok()
            # Whether it is ready is told by 503, and no failure of the API.
            kept = promises if operation.path in MAY_BE_503 else [checks.not_a_server_error, *promises]
            for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
                try_out(operation, mode, kept)
    return codes


def test_the_api_keeps_its_promises(dashboard):
    codes = examine(dashboard.url, CHANGE, examples=4)
    assert {200, 404, 422} <= codes
    assert dashboard.status()["decisions"]


def test_with_tokens_too(with_tokens):
    codes = examine(with_tokens.url, {"Authorization": f"Bearer {VIEWER}", **CHANGE}, examples=2)
    assert {200, 403} <= codes
    assert examine_without_token(with_tokens.url) <= {200, 401, 422, 429, 503}


def examine_without_token(url: str) -> set[int]:
    """What is told to somebody unknown."""
    requests = component("requests")
    described = requests.get(
        f"{url}/openapi.json", headers={"Authorization": f"Bearer {VIEWER}"}, timeout=TIMEOUT
    ).json()
    codes = set()
    for path, operations in described["paths"].items():
        for method in operations:
            answer = requests.request(
                method, url + path.replace("{", "").replace("}", ""), headers=CHANGE, timeout=TIMEOUT
            )
            expected = {200, 422, 503} if path in ("/api/v1/session", "/healthz") else {401}
            assert answer.status_code in expected, path
            codes.add(answer.status_code)
    return codes


@pytest.mark.soak
def test_the_api_keeps_its_promises_for_long(dashboard):
    assert {200, 404, 422} <= examine(dashboard.url, CHANGE, examples=300)
