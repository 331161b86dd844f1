"""Names of models, such as "openai:gpt-5", and the nearest known name for a wrong one.

Only the form of a name and its provider are checked: providers add models every month, so a model
that is not known here may well exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from sennit.errors import ValidationError, did_you_mean, nearest, short_repr

NAME_FORMS = (
    "'provider:model', such as 'openai:gpt-5', or 'local', or 'local:/path/to/weights.gguf'"
)
_MODEL_NAME = re.compile(r"([A-Za-z0-9_.-]+):\S+")
_DIGITS = re.compile(r"\d")

_PROVIDER_BY_FAMILY = {
    "gpt-": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "claude": "anthropic",
    "gemini": "google",
    "deepseek": "deepseek",
    "llama": "ollama",
    "qwen": "ollama",
}
"""The provider to suggest for a model's name without one, by how the name begins."""


def checked_name(name: str) -> str:
    """Return a name such as "openai:gpt-5"; raises ValidationError if it is invalid."""
    from sennit.services.models.providers.model import PROVIDERS

    providers = ("local", *PROVIDERS)
    match = _MODEL_NAME.fullmatch(name)
    if match is None:
        hint = _full_name_hint(name, providers)
        raise ValidationError(f"{short_repr(name)} is not a model name; use {NAME_FORMS}.{hint}")
    if match[1] not in providers:
        closest = [f"{provider}{name[match.end(1) :]}" for provider in nearest(match[1], providers)]
        raise ValidationError(
            f"{short_repr(name)} has an unknown provider; there are {', '.join(providers)}."
            f"{_question(closest[:1])}"
        )
    return name


def nearest_known(name: str, *, same_digits: bool = False) -> str:
    """Return a hint at the known model of the same provider nearest to an unknown one.

    With `same_digits`, a name that may be that of a newer version gets no hint.
    """
    known = [other for other in _known_models() if other.startswith(f"{name.partition(':')[0]}:")]
    if name in known:
        return ""
    if same_digits:
        known = [other for other in known if _digits(other) == _digits(name)]
    return did_you_mean(name, known, limit=1)


def _full_name_hint(name: str, providers: Iterable[str]) -> str:
    """Return a hint at the full name for a name without a provider, or with "/" after it."""
    provider, slash, model = name.partition("/")
    if " " in name:
        return ""
    if slash and model and provider in providers:
        return _question([f"{provider}:{model}"])
    for family, provider in _PROVIDER_BY_FAMILY.items():
        if name.lower().startswith(family):
            full_name = f"{provider}:{name}"
            return nearest_known(full_name, same_digits=True) or _question([full_name])
    for provider in nearest(name, providers, limit=1):
        return _question([provider if provider == "local" else f"{provider}:…"])
    by_model = {known.partition(":")[2]: known for known in _known_models()}
    return _question([by_model[model] for model in nearest(name, by_model, limit=1)])


def _question(names: list[str]) -> str:
    return f" Did you mean {names[0]!r}?" if names else ""


def _digits(name: str) -> list[str]:
    return sorted(_DIGITS.findall(name))


@cache
def _known_models() -> list[str]:
    """Return the models that pydantic-ai lists, under our names of the providers."""
    from sennit.services.models.providers.model import PROVIDERS

    try:
        from sennit.services.models.providers.client import known_models  # late: slow to import
    except ImportError:
        return []
    return [
        f"{provider}:{model}"
        for provider, other in PROVIDERS.items()
        for listed_provider, model in known_models()
        if listed_provider in (provider, other)
    ]
