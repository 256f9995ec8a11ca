"""botocore and boto3: what their exceptions mean, and what may send again; nothing of them is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from counterfoil.core.states import AttemptOutcome
from counterfoil.providers.statuses import judged
from counterfoil.providers.tables import Table, never_left
from counterfoil.providers.tracebacks import frames, local

if TYPE_CHECKING:
    from counterfoil.providers.tables import Judgement

THROTTLED: Final = frozenset(
    {"Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestThrottledException"}
    | {"TooManyRequestsException", "RequestLimitExceeded", "BandwidthLimitExceeded", "LimitExceededException"}
    | {"ProvisionedThroughputExceededException", "SlowDown", "PriorRequestNotComplete", "EC2ThrottledException"}
)
"""Error codes by which AWS says that it did not begin; those that botocore itself counts as throttling."""

LOST: Final = frozenset({"RequestTimeout", "RequestTimeoutException", "TransactionInProgressException"})
"""Error codes that prove nothing although their status looks like a refusal."""


def _is_first_try(error: BaseException) -> bool:
    """Botocore counts its attempts beside each request; without a request none was made."""
    return all(local(each, "attempts") == 1 for each in frames(error, "_send_request", "botocore.endpoint"))


def _never_left(error: BaseException) -> bool:
    """Ask about the exception of urllib3 that it wraps."""
    wrapped = getattr(error, "kwargs", {}).get("error")
    return isinstance(wrapped, BaseException) and _is_first_try(error) and never_left(wrapped)


def _judge(error: BaseException) -> Judgement | None:
    answer: Any = getattr(error, "response", None)
    if not isinstance(answer, dict) or "Error" not in answer:
        return None
    about, code = answer.get("ResponseMetadata", {}), answer["Error"].get("Code")
    if about.get("RetryAttempts", 0) or code in LOST:
        return AttemptOutcome.UNKNOWN
    return AttemptOutcome.NOT_SENT if code in THROTTLED else judged(about.get("HTTPStatusCode"))


def hidden_retries(client: Any) -> str | None:
    """Say how often a client may send a request again."""
    config = getattr(getattr(client, "meta", None), "config", None)
    if config is None:
        return None
    retries = getattr(config, "retries", None) or {}
    attempts = retries.get("total_max_attempts", retries.get("max_attempts", 2) + 1)  # 2: the fewest by default
    return None if attempts == 1 else 'it tries several times; write Config(retries={"total_max_attempts": 1})'


TABLE: Final = Table(
    client="botocore",
    not_sent=frozenset(
        {"botocore.EndpointConnectionError", "botocore.ConnectTimeoutError", "botocore.ProxyConnectionError"}
        | {"botocore.NoCredentialsError", "botocore.PartialCredentialsError", "botocore.CredentialRetrievalError"}
        | {"botocore.NoRegionError", "botocore.ParamValidationError"}
    ),
    unknown=frozenset(
        {"botocore.ReadTimeoutError", "botocore.ConnectionClosedError", "botocore.ResponseStreamingError"}
        | {"botocore.HTTPClientError", "botocore.SSLError", "botocore.ClientError"}
    ),
    is_first_try=_is_first_try,
    never_left=_never_left,
    judge=_judge,
    by_structure=(
        ("not-sent ones after a retry", "unknown"),
        (
            "`SSLError`, `ReadTimeoutError`, `ConnectionClosedError`",
            "not sent if the exception of urllib3 that it wraps is",
        ),
        ("`ClientError`", "throttling codes: not sent; others by status; unknown after a retry"),
    ),
)
