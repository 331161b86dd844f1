"""Retry, circuit breaker, rate limit and timeout around a model.

Each wraps a model with `around(model)`, which returns a model. `iModel` applies all of them: retry
outermost, then the circuit breaker, the rate limit, and the timeout innermost.
"""

from sennit.services.models.limits.circuit_breaker import CircuitBreaker
from sennit.services.models.limits.rate_limit import RateLimit
from sennit.services.models.limits.retry import Retry
from sennit.services.models.limits.timeout import Timeout

__all__ = ["CircuitBreaker", "RateLimit", "Retry", "Timeout"]
