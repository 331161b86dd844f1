"""Operations on a branch: generate, parse, communicate, operate and react."""

from typing import TYPE_CHECKING

from sennit.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sennit.operations.context import OperationContext

__all__ = ["OperationContext"]

if not TYPE_CHECKING:  # to type checkers, a misspelt name is an error
    __getattr__ = lazy_exports(
        __name__,
        {
            "context": "OperationContext",
        },
    )
