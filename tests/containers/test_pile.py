"""A pile is an ordered set of items by id, safe to add to from many threads."""

import copy
import pickle
import random
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sennit.containers import Element, Pile, Progression
from sennit.errors import ExistsError, InvalidTypeError, NotFoundError, OutOfRangeError
from sennit.errors import ValidationError as Refused
from sennit.ids import new_id


class Note(Element):
    __slots__ = ()


NOTES = [Note() for _ in range(8)]

notes = st.sampled_from(NOTES)
indices = st.integers(-12, 12)


class DictModel(RuleBasedStateMachine):
    """Do the same to a pile and to a list of unique items; they must agree after every step."""

    @initialize()
    def begin(self) -> None:
        self.pile: Pile[Note] = Pile(item_type=Note)
        self.model: list[Note] = []
        self.removed = (0, 0)

    @rule(note=notes)
    def add(self, note: Note) -> None:
        if note in self.model:
            with pytest.raises(ExistsError):
                self.pile.add(note)
        else:
            self.pile.add(note)
            self.model.append(note)

    @rule(batch=st.lists(notes, max_size=4))
    def extend(self, batch: list[Note]) -> None:
        if len(set(batch)) < len(batch) or set(batch) & set(self.model):
            with pytest.raises(ExistsError):
                self.pile.extend(batch)
        else:
            self.pile.extend(batch)
            self.model += batch

    @rule(count=st.integers(20, 60))
    def extend_by_many(self, count: int) -> None:
        fresh = [Note() for _ in range(count)]
        self.pile.extend(fresh)
        self.model += fresh

    @rule(note=notes)
    def include(self, note: Note) -> None:
        expected = note not in self.model
        self.model += [note] * expected
        assert self.pile.include(note) is expected

    @rule(note=notes, how=st.sampled_from([lambda n: n, lambda n: n.id, lambda n: str(n.id)]))
    def remove(self, note: Note, how: Callable[[Note], Note | UUID | str]) -> None:
        if note in self.model:
            assert self.pile.remove(how(note)) is note
            self.model.remove(note)
        else:
            with pytest.raises(NotFoundError, match=str(note.id)):
                self.pile.remove(how(note))

    @rule(seed=st.integers(0, 99), share=st.floats(0, 1))
    def remove_many_anywhere(self, seed: int, share: float) -> None:
        for note in random.Random(seed).sample(self.model, int(len(self.model) * share)):
            assert self.pile.pop(note) is note
            self.model.remove(note)

    @rule(note=notes)
    def exclude(self, note: Note) -> None:
        expected = note in self.model
        self.model = [other for other in self.model if other != note]
        assert self.pile.exclude(note) is expected

    @rule(note=notes)
    def pop_with_default(self, note: Note) -> None:
        expected = note if note in self.model else None
        self.model = [other for other in self.model if other != note]
        assert self.pile.pop(note.id, None) is expected

    @rule()
    def clear(self) -> None:
        self.pile.clear()
        self.model.clear()

    @rule(index=indices)
    def read_index(self, index: int) -> None:
        if -len(self.model) <= index < len(self.model):
            assert self.pile[index] is self.model[index]
        else:
            with pytest.raises(OutOfRangeError, match=f"{index} .* {len(self.model)}"):
                self.pile[index]

    @rule(where=st.slices(10))
    def read_slice(self, where: slice) -> None:
        assert list(self.pile[where]) == self.model[where]

    @rule(data=st.data())
    def read_selection(self, data: st.DataObject) -> None:
        if self.model:
            chosen = data.draw(st.lists(st.sampled_from(self.model), max_size=5))
            unique = list(dict.fromkeys(chosen))
            assert list(self.pile[[note.id for note in chosen]]) == unique
            assert list(self.pile[Progression(chosen)]) == unique

    @invariant()
    def same_items(self) -> None:
        assert list(self.pile) == self.model
        assert self.pile.keys() == [note.id for note in self.model]
        assert len(self.pile) == len(self.model)
        assert bool(self.pile) is bool(self.model)
        for note in NOTES:
            assert (note in self.pile) is (note in self.model)
            assert self.pile.get(note.id, None) is (note if note in self.model else None)

    @invariant()
    def ids_that_left_changed_the_revision(self) -> None:
        revision, length = self.removed
        if self.pile.revision == revision:
            assert len(self.model) >= length
        self.removed = (self.pile.revision, len(self.model))


TestPileBehavesAsAnOrderedSet = DictModel.TestCase


@pytest.fixture
def eager_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(count: int, work: Callable[[int], object]) -> list[object]:
    start = Barrier(count)

    def run(number: int) -> object:
        start.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


@pytest.mark.usefixtures("eager_threads")
def test_adds_from_eight_threads_lose_nothing_while_others_read():
    pile: Pile[Note] = Pile(item_type=Note)
    made: list[list[Note]] = [[Note() for _ in range(1000)] for _ in range(8)]

    def work(number: int) -> None:
        for step, note in enumerate(made[number]):
            pile.add(note)
            if step % 5 == 0:
                assert pile[-1] in pile
            if step % 100 == 0:
                assert note in list(pile)

    in_threads(8, work)
    assert len(pile) == 8000
    assert set(pile) == {note for batch in made for note in batch}
    assert list(pile[:]) == list(pile)
    for batch in made:
        own = set(batch)
        assert [note for note in pile if note in own] == batch


@pytest.mark.usefixtures("eager_threads")
def test_adds_and_removals_from_many_threads_keep_items_and_positions_in_step():
    pile: Pile[Note] = Pile(NOTES)
    kept: list[list[Note]] = [[] for _ in range(6)]

    def work(number: int) -> None:
        for step in range(300):
            note = Note()
            pile.add(note)
            if step % 3:
                pile.remove(note)
            else:
                kept[number].append(note)
            assert pile[0] is NOTES[0]

    in_threads(6, work)
    assert set(pile) == {*NOTES, *(note for batch in kept for note in batch)}
    assert [pile[index] for index in range(len(pile))] == list(pile)


@pytest.mark.usefixtures("eager_threads")
def test_of_many_threads_adding_different_items_with_one_id_exactly_one_wins():
    for _ in range(50):
        pile: Pile[Note] = Pile()
        uid = new_id()
        twins = [Note() for _ in range(6)]
        for twin in twins:
            twin._id = uid
        won = in_threads(6, lambda number: pile.include(twins[number]))  # noqa: B023
        assert won.count(True) == 1
        assert pile[uid] is twins[won.index(True)]


class Meddled(dict[int, Note]):
    """A dict in which another thread always gets in between two steps, exactly once."""

    def __init__(self, items: dict[int, Note], rival: Note, moment: str) -> None:
        super().__init__(items)
        self.rival, self.moment = rival, moment

    def meddle(self, moment: str) -> None:
        if moment == self.moment:
            self.moment = "over"
            self[self.rival.id.int] = self.rival

    def __contains__(self, key: object) -> bool:
        found = super().__contains__(key)
        self.meddle("after a look")
        return found

    def values(self):  # pyright: ignore[reportIncompatibleMethodOverride]
        self.meddle("before reading")
        return self

    def __reversed__(self):  # pyright: ignore[reportIncompatibleMethodOverride]
        backwards = reversed(super().values())
        self.meddle("while reading")
        return backwards


def test_an_id_that_is_taken_just_after_the_check_is_still_refused():
    late = Note()
    pile: Pile[Note] = Pile()
    pile._items = Meddled({}, Note(id=late.id), "after a look")
    with pytest.raises(ExistsError):
        pile.add(late)
    assert pile[late.id] is not late


@pytest.mark.parametrize("moment", ["before reading", "while reading"])
def test_an_item_that_comes_in_while_positions_are_worked_out_gets_its_own(moment: str):
    rival = Note()
    pile = Pile(NOTES)
    pile._items = Meddled(pile._items, rival, moment)
    assert pile[0] is NOTES[0]
    assert pile[-1] is rival
    assert [pile[index] for index in range(9)] == [*NOTES, rival]


def test_items_and_positions_change_under_one_lock():
    class Watched(dict[int, Note]):
        def pop(self, *args):
            with ThreadPoolExecutor(1) as other:
                free.append(other.submit(pile._lock.acquire, blocking=False).result())
            return super().pop(*args)

    free: list[bool] = []
    pile = Pile(NOTES)
    assert pile[0] is NOTES[0]
    pile._items = Watched(pile._items)
    pile.remove(NOTES[0])
    assert free == [False]


def test_removing_between_looks_at_both_ends_takes_linear_work(monkeypatch: pytest.MonkeyPatch):
    placed = 0
    store = Progression._store

    def counting(self: Progression, ids: list[UUID]) -> None:
        nonlocal placed
        placed += len(ids)
        store(self, ids)

    monkeypatch.setattr(Progression, "_store", counting)
    pile = Pile(Note() for _ in range(6000))
    for note in random.Random(5).sample(list(pile), 5999):
        pile.remove(note)
        assert pile[0] in pile
        assert pile[-1] in pile
    assert placed <= 12_000


def test_adding_and_looking_at_the_last_catches_up_on_one_id_each(
    monkeypatch: pytest.MonkeyPatch,
):
    pile = Pile(NOTES)
    caught: list[int] = []
    extend = Progression._extend
    monkeypatch.setattr(
        Progression, "_extend", lambda self, ids: (caught.append(len(ids)), extend(self, ids))
    )
    assert pile[0] is NOTES[0]
    for _ in range(100):
        note = Note()
        pile.add(note)
        assert pile[-1] is note
    assert caught == [len(NOTES)] + [1] * 100


def test_no_order_is_built_until_a_position_is_asked_for():
    pile = Pile(NOTES)
    pile.remove(NOTES[3])
    assert pile[NOTES[0].id] is NOTES[0]
    assert pile._order is None
    assert pile[0] is NOTES[0]
    assert pile._order is not None


def test_an_item_is_found_by_id_and_by_its_string():
    pile = Pile(NOTES)
    assert pile[NOTES[2].id] is NOTES[2]
    assert pile[str(NOTES[2].id)] is NOTES[2]
    assert pile.get(NOTES[2]) is NOTES[2]
    assert str(NOTES[2].id) in pile
    assert NOTES[2] in pile


@pytest.mark.parametrize("junk", [None, 5, "nonsense", object(), [], b""])
def test_junk_is_simply_not_in_a_pile(junk: object):
    assert junk not in Pile(NOTES)


def test_a_missing_id_is_a_key_error_that_names_it():
    missing = new_id()
    for action in (Pile(NOTES).__getitem__, Pile(NOTES).get, Pile(NOTES).remove, Pile(NOTES).pop):
        with pytest.raises(KeyError, match=f"No item '{missing}'"):
            action(missing)
    with pytest.raises(NotFoundError, match=str(missing)):
        Pile(NOTES)[[NOTES[0].id, missing]]


def test_a_default_of_none_is_a_default():
    assert Pile(NOTES).get(new_id(), None) is None
    assert Pile(NOTES).pop(new_id(), None) is None


@pytest.mark.parametrize("key", [1.5, None, {1}, Element(), b"x"])
def test_a_key_of_another_kind_is_refused_with_the_list_of_kinds(key):
    with pytest.raises(InvalidTypeError, match="a UUID or UUID string, an int, a slice"):
        Pile(NOTES)[key]


def test_a_string_that_is_no_uuid_is_refused():
    with pytest.raises(Refused, match="'main' is not a UUID"):
        Pile(NOTES)["main"]


def test_a_predicate_selects_items_in_order():
    pile = Pile(NOTES)
    chosen = pile[lambda note: note in NOTES[2:4]]
    assert isinstance(chosen, Pile)
    assert list(chosen) == NOTES[2:4]


def test_a_selection_is_a_pile_of_its_own_with_the_same_item_type():
    pile = Pile(NOTES, item_type=Note)
    chosen = pile[2:4]
    chosen.add(Note())
    assert len(pile) == len(NOTES)
    with pytest.raises(InvalidTypeError, match="Note"):
        chosen.add(Element())  # pyright: ignore[reportArgumentType]


def test_an_item_of_the_wrong_type_is_refused_everywhere():
    pile: Pile[Note] = Pile(item_type=Note)
    for action in (pile.add, pile.include):
        with pytest.raises(InvalidTypeError, match="type Note"):
            action(Element())  # pyright: ignore[reportArgumentType]
        with pytest.raises(InvalidTypeError, match="'text'"):
            action("text")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidTypeError):
        Pile([Element()], item_type=Note)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidTypeError, match="subclass of Element"):
        Pile(item_type=int)  # pyright: ignore[reportArgumentType]
    assert not pile


def test_constructing_with_one_id_twice_is_refused():
    with pytest.raises(ExistsError, match=str(NOTES[0].id)):
        Pile([NOTES[0], NOTES[1], NOTES[0]])


@pytest.mark.parametrize("bad", [NOTES[0], NOTES[7], "text", Element()])
def test_extend_adds_all_or_nothing(bad):
    pile = Pile(NOTES[:2], item_type=Note)
    with pytest.raises((ExistsError, InvalidTypeError)):
        pile.extend([NOTES[6], NOTES[7], bad])
    assert list(pile) == NOTES[:2]


class GuardedPile(Pile[Note]):
    """Lets nothing in or out but through its three doors, as a session's pile does."""

    __slots__ = ("calls", "full_at")

    def __init__(self, full_at: int = 99) -> None:
        super().__init__(item_type=Note)
        self.full_at = full_at
        self.calls: list[str] = []

    def add(self, item: Note) -> None:
        self.calls.append("add")
        if len(self) == self.full_at:
            raise PermissionError("full")
        super().add(item)

    def remove(self, ref) -> Note:
        self.calls.append("remove")
        return super().remove(ref)

    def clear(self) -> None:
        self.calls.append("clear")
        super().clear()


def test_every_change_goes_through_add_remove_and_clear():
    pile = GuardedPile()
    pile.extend(NOTES[:2])
    pile.include(NOTES[2])
    pile.exclude(NOTES[0])
    pile.pop(NOTES[1])
    pile.pop(NOTES[1], None)
    pile.clear()
    assert pile.calls == ["add", "add", "add", "remove", "remove", "clear"]


def test_extend_takes_back_what_it_added_when_a_later_item_is_refused():
    pile = GuardedPile(full_at=3)
    pile.add(NOTES[0])
    with pytest.raises(PermissionError, match="full"):
        pile.extend(NOTES[1:5])
    assert list(pile) == [NOTES[0]]


def test_a_selection_of_a_guarded_pile_is_a_plain_pile():
    pile = GuardedPile()
    pile.extend(NOTES)
    assert type(pile[:3]) is Pile


def test_an_error_of_the_guard_is_not_mistaken_for_an_item_that_is_there():
    class Named(Pile[Note]):
        def add(self, item: Note) -> None:
            raise ExistsError("name taken")

    with pytest.raises(ExistsError, match="name taken"):
        Named().include(NOTES[0])


def test_the_bare_methods_report_whether_they_did_something():
    pile: Pile[Note] = Pile()
    assert pile._insert(NOTES[0]) is True
    assert pile._insert(NOTES[0]) is False
    assert pile._discard(NOTES[0].id) is NOTES[0]
    assert pile._discard(NOTES[0].id) is None


def test_adding_keeps_the_revision_and_removing_or_clearing_changes_it():
    pile = Pile(NOTES[:3])
    pile.add(NOTES[4])
    assert pile.revision == 0
    pile.remove(NOTES[4])
    after_removal = pile.revision
    pile.clear()
    assert len({0, after_removal, pile.revision}) == 3


def test_iteration_shows_what_stood_there_when_it_began():
    pile = Pile(NOTES)
    shown = []
    for note in pile:
        shown.append(note)
        pile.remove(note)
        pile.add(Note())
    assert shown == NOTES
    assert len(pile) == len(NOTES)


def test_an_item_removed_and_added_again_stands_last():
    pile = Pile(NOTES)
    assert pile[0] is NOTES[0]
    pile.remove(NOTES[0])
    pile.add(NOTES[0])
    assert pile[-1] is NOTES[0]
    assert list(pile[:]) == [*NOTES[1:], NOTES[0]]


def test_equality_goes_by_id_not_by_items():
    assert Pile(NOTES) != Pile(NOTES)
    pile = Pile(NOTES)
    assert pile == Pile(id=pile.id)


def test_a_dict_of_items_by_id_is_one_call():
    assert dict(Pile(NOTES)) == {note.id: note for note in NOTES}


def test_the_repr_tells_the_length():
    assert repr(Pile(NOTES)).startswith("Pile(len=8, id='")


@pytest.mark.parametrize(
    "twin_of", [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))]
)
def test_a_copy_is_independent_of_its_original(twin_of):
    pile = Pile(NOTES, item_type=Note)
    assert pile[0] is NOTES[0]
    twin = twin_of(pile)
    assert (twin, list(twin)) == (pile, NOTES)
    twin.remove(NOTES[0])
    twin.add(Note())
    assert list(pile[:]) == NOTES
    assert twin[0] == NOTES[1]
