"""What every element has: an id, a time, metadata, and equality by id alone."""

import copy
import pickle
import weakref
from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType
from uuid import UUID, uuid4

import pytest

import sennit
from sennit import clock
from sennit.containers import Element, Pile, uid_of
from sennit.errors import CodecError, InvalidTypeError, ValidationError


class Note(Element):
    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        super().__init__(metadata={"words": text.split()})
        self.text = text


def test_a_new_element_gets_a_time_ordered_id():
    ids = [Element().id for _ in range(1000)]
    assert {uid.version for uid in ids} == {7}
    assert ids == sorted(ids)
    assert len(set(ids)) == 1000


def test_a_given_id_is_kept_and_a_string_is_parsed():
    uid = uuid4()
    assert Element(id=uid).id is uid
    assert Element(id=str(uid)).id == uid


def test_a_string_that_is_no_uuid_is_refused_by_name():
    with pytest.raises(ValidationError, match="'nonsense' is not a UUID"):
        Element(id="nonsense")


@pytest.mark.parametrize("junk", [7, 1.5, b"x", object(), ["a"]])
def test_an_id_of_another_type_is_refused_by_name(junk: object):
    with pytest.raises(InvalidTypeError, match=r"Expected a UUID"):
        Element(id=junk)  # pyright: ignore[reportArgumentType]


def test_the_creation_time_is_read_from_the_clock_and_shown_in_utc():
    with clock.wall_clock_from(lambda: 1_700_000_000_123_456_789):
        element = Element()
    assert element.created_at == datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
    assert element.created_at.tzinfo is UTC


def test_a_given_creation_time_survives_exactly_and_is_converted_to_utc():
    moment = datetime(2024, 2, 29, 1, 2, 3, 999999, tzinfo=timezone(timedelta(hours=5)))
    assert Element(created_at=moment).created_at == moment
    assert Element(created_at=moment).created_at.utcoffset() == timedelta(0)


def test_a_creation_time_without_a_zone_is_refused_and_the_way_out_named():
    with pytest.raises(ValidationError, match=r"datetime\.now\(UTC\)"):
        Element(created_at=datetime(2024, 1, 1))


def test_empty_metadata_is_one_shared_object():
    one, other = Element(), Element(metadata={})
    assert one.metadata is other.metadata
    assert one.metadata == {}


def test_metadata_is_copied_and_read_only():
    given = {"a": 1}
    element = Element(metadata=given)
    given["a"] = 2
    assert element.metadata == {"a": 1}
    assert isinstance(element.metadata, MappingProxyType)
    with pytest.raises(TypeError):
        element.metadata["a"] = 3  # pyright: ignore[reportIndexIssue]


@pytest.mark.parametrize("junk", [5, [], "text", [("a", 1)]])
def test_metadata_that_is_no_mapping_is_refused(junk: object):
    with pytest.raises(InvalidTypeError, match="mapping"):
        Element(metadata=junk)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("field", ["id", "created_at", "metadata", "anything"])
def test_nothing_can_be_assigned(field: str):
    with pytest.raises(AttributeError):
        setattr(Element(), field, None)


def test_elements_are_equal_and_hash_alike_when_their_ids_are_equal():
    uid = uuid4()
    one, other = Element(id=uid), Element(id=uid, metadata={"a": 1})
    assert one == other
    assert hash(one) == hash(other)
    assert len({one, other, Element()}) == 2


def test_an_element_is_not_equal_to_its_bare_id():
    element = Element()
    assert element != element.id
    assert element.__eq__(element.id) is NotImplemented


def test_an_element_can_be_referenced_weakly_and_has_no_dict():
    element = Element()
    assert weakref.ref(element)() is element
    assert not hasattr(element, "__dict__")


@pytest.mark.parametrize(
    "twin_of", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))]
)
def test_copies_and_pickles_keep_id_time_metadata_and_own_fields(twin_of):
    note = Note("two words")
    twin = twin_of(note)
    assert twin is not note
    assert (twin, twin.created_at, twin.text) == (note, note.created_at, "two words")
    assert twin.metadata == {"words": ["two", "words"]}
    assert isinstance(twin.metadata, MappingProxyType)
    assert twin_of(Element()).metadata is Element().metadata


def test_the_repr_names_class_and_id():
    uid = UUID(int=5)
    assert repr(Element(id=uid)) == "Element(id='00000000-0000-0000-0000-000000000005')"


def test_uid_of_takes_an_element_an_id_or_its_string():
    element = Element()
    assert uid_of(element) is element.id
    assert uid_of(element.id) is element.id
    assert uid_of(str(element.id)) == element.id


def test_uid_of_refuses_the_rest_by_name():
    with pytest.raises(ValidationError, match="'main'"):
        uid_of("main")
    with pytest.raises(InvalidTypeError, match="12"):
        uid_of(12)  # pyright: ignore[reportArgumentType]


def test_an_element_in_a_dict_becomes_one_of_its_kind():
    message = sennit.Message(sennit.InstructionContent("Hello"), sender="ada", metadata={"n": 1})
    found = Element.from_dict(message.to_dict())
    assert type(found) is sennit.Message
    assert found.to_dict() == message.to_dict()
    bare = {"id": str(uuid4()), "created_at": "2026-01-02T03:04:05+00:00", "metadata": {"n": 1}}
    found = Element.from_dict(bare)
    assert type(found) is Element
    assert (str(found.id), found.created_at.year, found.metadata) == (bare["id"], 2026, {"n": 1})


def test_a_kind_of_your_own_is_found_by_its_key():
    class Card(Element, key="card"):
        @classmethod
        def from_dict(cls, data):
            return cls(id=data["id"], metadata={"card": data["card"]})

    found = Element.from_dict({"id": str(uuid4()), "card": "ace"})
    assert type(found) is Card
    assert found.metadata == {"card": "ace"}


@pytest.mark.parametrize(
    "data",
    [
        {"id": str(uuid4()), "created_at": "2026-01-02T03:04:05+00:00", "class": "os.path"},
        {"id": str(uuid4())},
        ["id"],
    ],
)
def test_a_dict_of_no_kind_is_refused(data):
    with pytest.raises(CodecError):
        Element.from_dict(data)


def test_a_pile_is_not_made_from_a_dict():
    with pytest.raises(InvalidTypeError, match="A Pile cannot be created from a dict"):
        Pile.from_dict({})
