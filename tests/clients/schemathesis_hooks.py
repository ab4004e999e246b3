"""What schemathesis is told about this server: which models there are, and what an overloaded server may say."""
import os

import schemathesis

MODELS = os.environ.get("QUARREL_TEST_MODELS", "toy").split(",")


def usable(value, place):
    """A name that was made up, as one that is there, in most cases: else every request would end with 404."""
    if not isinstance(value, str) or place % 8 == 7:
        return value
    return MODELS[place % len(MODELS)]


@schemathesis.hook
def map_body(context, body):
    if isinstance(body, dict):
        place = len(repr(body))
        for name in ("model", "name", "source"):
            if name in body:
                body[name] = usable(body[name], place)
    return body


@schemathesis.check
def faults_are_temporary(context, response, case):
    """No 500; 503 and 429 say when to try again."""
    if response.status_code >= 500 and response.status_code != 503:
        raise AssertionError(f"{response.status_code}: {response.content[:300]!r}")
    if response.status_code in (429, 503):
        wait = (response.headers.get("retry-after") or [""])[0]
        if not wait.isdigit() or int(wait) < 1:
            raise AssertionError(f"{response.status_code} without Retry-After")


@schemathesis.check
def a_request_has_an_id(context, response, case):
    if not response.headers.get("x-request-id"):
        raise AssertionError("no x-request-id")
