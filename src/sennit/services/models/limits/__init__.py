"""Retry, circuit breaker, rate limit and timeout around a model.

Each is put around a model with `around(model)`, which gives a model again; `iModel` puts all of
them around its own: retry outside, then the breaker, the rate limit, and the timeout inside.
"""

from sennit.services.models.limits.circuit_breaker import CircuitBreaker
from sennit.services.models.limits.rate_limit import RateLimit
from sennit.services.models.limits.retry import Retry
from sennit.services.models.limits.timeout import Timeout

__all__ = ["CircuitBreaker", "RateLimit", "Retry", "Timeout"]
