"""Random JSON values, for the property tests of operations."""

from __future__ import annotations

from hypothesis import strategies as st

texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
