"""Addresses of databases: nothing that is said of one shows its password."""

from __future__ import annotations

import traceback

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sennit
from sennit import SennitError
from sennit.stores.database_url import redact_url, without_secrets

CANARY = "Canary7"
_SIGNS = st.text(st.sampled_from("@:/?#[]%&=+,;!$'()* \t~.-_aZ09é"), max_size=6)
_ADDRESSES = st.sampled_from(
    [
        "postgresql://ada:{0}@127.0.0.1:1/db",
        "postgres://ada:{0}@127.0.0.1:1/db?sslmode=disable",
        "postgresql://{0}@127.0.0.1:1/db",
        "postgresql://ada:{0}@/db?host=/nowhere",
        "postgresql://ada@127.0.0.1:1/db?password={0}",
        "postgresql:/ada:{0}@127.0.0.1:1/db",
        "postgresql:ada:{0}@127.0.0.1:1/db",
        "Postgresql://ada:{0}@127.0.0.1:1/db",
        "mysql://ada:{0}@127.0.0.1:1/db",
    ]
)


@given(before=_SIGNS, after=_SIGNS, address=_ADDRESSES)
@settings(max_examples=150, deadline=None)
def test_no_error_tells_a_password_whatever_signs_are_in_it(
    before: str, after: str, address: str
) -> None:
    if address.startswith("postgresql://{0}@") and ":" not in before:
        before = f"ada:{before}"  # else it is the name of a user, which may be shown
    url = address.format(f"{before}{CANARY}{after}")
    with pytest.raises(SennitError) as caught:
        sennit.open(url).close()
    told = "".join(traceback.format_exception(caught.value, chain=True))
    said = [line for line in told.splitlines() if "test_database_url.py" not in line]
    assert CANARY not in "\n".join(said)
    assert CANARY not in redact_url(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "postgresql://ada:p%40ss@db.example:5432/chat?sslmode=require",
            "ada@db.example:5432/chat",
        ),
        ("postgresql://db.example/chat", "db.example/chat"),
        ("postgresql://ada:secret@[::1]:5432/chat", "ada@[::1]:5432/chat"),
        ("postgresql://ada:secret@a:1,b:2/chat", "ada@a:1,b:2/chat"),
        ("postgresql:///chat?host=/run/postgresql", "/chat"),
        ("postgresql://u:p@ssword@127.0.0.1/db", "…"),
        ("postgresql://u:pa/ssword@127.0.0.1/db", "…"),
        ("postgresql:u:password@127.0.0.1/db", "…"),
        ("postgresql:/u:pass://@127.0.0.1/db", "…"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert redact_url(url) == f"postgresql://{shown}"


def test_an_unescaped_sign_in_a_password_is_refused_with_the_way_out() -> None:
    with pytest.raises(SennitError, match=r"'@' as %40") as caught:
        sennit.open("postgresql://u:p@ssCANARY@127.0.0.1:1/db")
    assert "CANARY" not in str(caught.value)


def test_the_words_of_a_driver_are_searched_for_the_password() -> None:
    assert without_secrets('FATAL: "hunter2" is wrong', ["hunter2"]) == 'FATAL: "…" is wrong'
