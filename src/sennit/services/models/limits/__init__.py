"""Retry, circuit breaker, rate limit and timeout of model calls; `iModel` applies them."""

from sennit.services.models.limits.circuit_breaker import CircuitBreaker
from sennit.services.models.limits.rate_limit import RateLimit
from sennit.services.models.limits.retry import Retry
from sennit.services.models.limits.timeout import Timeout

__all__ = ["CircuitBreaker", "RateLimit", "Retry", "Timeout"]
