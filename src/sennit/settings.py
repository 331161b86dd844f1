"""Default locations and environment variables."""

from __future__ import annotations

import math
import os
from datetime import timedelta
from pathlib import Path

from sennit.errors import ValidationError, short_repr


def default_url() -> str:
    """Return the default store URL: SENNIT_URL, or a file in the user's data folder."""
    return os.environ.get("SENNIT_URL") or str(data_folder() / "sennit.db")


def data_folder() -> Path:
    """Return the user's data folder."""
    from platformdirs import user_data_path

    return user_data_path("sennit", appauthor=False)


def telemetry_content() -> bool:
    """Return whether telemetry may contain message text: SENNIT_TELEMETRY_CONTENT."""
    return os.environ.get("SENNIT_TELEMETRY_CONTENT", "").lower() in ("1", "true", "yes", "on")


def retention() -> timedelta:
    """Return the retention time of removed messages: SENNIT_RETENTION_DAYS, or 30 days.

    Raises ValidationError.
    """
    text = os.environ.get("SENNIT_RETENTION_DAYS") or "30"
    try:
        days = float(text)
    except ValueError:
        days = math.nan
    if not 0 <= days <= 36_500:
        raise ValidationError(f"SENNIT_RETENTION_DAYS is a number of days, got {short_repr(text)}.")
    return timedelta(days=days)
