"""Database URLs, and redaction of their passwords.

With an unescaped "@", "/" or "?" in a password, parsers take a part of it for the host, port or
database, and every error then repeats it. So an ambiguous URL is refused before any driver sees it,
by an error that does not repeat it, and the password is removed from the driver's messages.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote

from sennit.errors import StoreError

_URL = re.compile(
    r"""(?P<scheme>postgres(?:ql)?)://
    (?:(?P<user>[^:@/?\s]*)(?::(?P<password>[^@/?]*))?@)?
    (?P<place>(?:\[[^\]@/?]*\]|[^:@/?,\[\]]*)(?::\d*)?(?:,[^:@/?,]*(?::\d*)?)*(?:/[^@/?]*)?)
    (?:\?(?P<query>[^@?]*))?""",
    re.VERBOSE | re.DOTALL,
)
_MIN_SECRET_LENGTH = 4  # shorter passwords occur in other words by chance


def redact_url(url: str) -> str:
    """Return a URL without its password and parameters; only the scheme if it is ambiguous."""
    if "://" not in url and not is_database(url):
        return url
    match = _URL.fullmatch(url)
    if match is None:
        return f"{url.partition(':')[0]}://…"  # "://" may stand in the password
    user = f"{match['user']}@" if match["user"] else ""
    return f"{match['scheme']}://{user}{match['place']}"


def is_database(address: str) -> bool:
    """Return whether an address looks like a PostgreSQL URL, even a mistyped one."""
    return re.match(r"\s*postgres(ql)?\s*:", address, re.IGNORECASE) is not None


def secrets_in(url: str) -> list[str]:
    """Return the passwords in a PostgreSQL URL, as written and percent-decoded.

    Raises StoreError, without repeating it, for an invalid or ambiguous URL.
    """
    if "://" not in url:  # parameters, such as "host=… password=…"
        return [match.strip("'") for match in re.findall(r"password\s*=\s*('[^']*'|\S+)", url)]
    match = _URL.fullmatch(url)
    if match is None:
        raise StoreError(
            "The PostgreSQL URL is invalid; it should look like "
            "postgresql://user:password@host:5432/database, with special characters in the "
            "password percent-encoded: '@' as %40, '/' as %2F, '?' as %3F."
        )
    parameters = dict(parse_qsl(match["query"] or ""))
    passwords = [match["password"] or "", parameters.get("password", "")]
    return [secret for password in passwords for secret in (password, unquote(password)) if secret]


def without_secrets(text: str, secrets: list[str]) -> str:
    """Return a driver's message with these secrets redacted."""
    for secret in secrets:
        if len(secret) >= _MIN_SECRET_LENGTH:
            text = text.replace(secret, "…")
    return text
