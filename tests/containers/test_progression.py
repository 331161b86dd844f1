"""A progression behaves as a list of ids does, and takes ids out without shifting the rest."""

import copy
import pickle
import random
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from unittest.mock import patch
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sennit.containers import Element, Progression, progression, uid_of
from sennit.errors import InvalidTypeError, NotFoundError, OutOfRangeError, ValidationError
from sennit.ids import new_id

IDS = [new_id() for _ in range(6)]


class ListProgression(Progression):
    """Keeps its ids in a plain list: shows that the documented primitives are enough."""

    __slots__ = ("plain",)

    def __init__(self) -> None:
        super().__init__()
        self.plain: list[UUID] = []
        del self._slots, self._first_slots, self._repeats, self._start, self._holes, self._gaps

    def __len__(self) -> int:
        return len(self.plain)

    def __iter__(self) -> Iterator[UUID]:
        return iter(self.plain.copy())

    def __contains__(self, ref: object) -> bool:
        return ref in self.plain

    def index(self, ref, start: int = 0, stop: int | None = None) -> int:
        try:
            return self.plain.index(uid_of(ref), start, len(self) if stop is None else stop)
        except ValueError:
            raise NotFoundError("not here") from None

    def append(self, ref) -> None:
        uid = uid_of(ref)
        self._admit((uid,))
        self.plain.append(uid)

    def _extend(self, ids: list[UUID]) -> None:
        self.plain.extend(ids)

    def _at(self, index: int) -> UUID:
        return self.plain[index]

    def _drop(self, uid: UUID) -> bool:
        if uid not in self.plain:
            return False
        self._delete(self.plain.index(uid))
        return True

    def _delete(self, index: int) -> UUID:
        self._revision += 1
        return self.plain.pop(index)

    def _rewrite(self, order: list[UUID], first: int) -> None:
        assert order[:first] == self.plain[:first]
        self._revision += 1
        self.plain = order


def outcome(action: Callable[[], object]) -> object:
    """What an action returns, or the built-in kind of its error: lists and we must agree."""
    try:
        return action()
    except KeyError:
        return ValueError  # list says ValueError where an id is missing
    except IndexError:
        return IndexError
    except ValueError:
        return ValueError


ids = st.sampled_from(IDS)
many_ids = st.lists(ids, max_size=5)
indices = st.integers(-12, 12)
slices = st.slices(8) | st.builds(slice, st.none() | indices, st.none() | indices)


class ListModel(RuleBasedStateMachine):
    """Do the same to a progression and to a list; they must agree after every step."""

    kind: type[Progression] = Progression

    @initialize()
    def begin(self) -> None:
        self.p = self.kind()
        self.model: list[UUID] = []
        self.seen: list[tuple[int, list[UUID]]] = []

    def both(self, ours: Callable[[], object], theirs: Callable[[], object]) -> None:
        assert outcome(ours) == outcome(theirs)

    @rule(uid=ids)
    def append(self, uid: UUID) -> None:
        self.both(lambda: self.p.append(uid), lambda: self.model.append(uid))

    @rule(uids=many_ids)
    def extend(self, uids: list[UUID]) -> None:
        self.both(lambda: self.p.extend(uids), lambda: self.model.extend(uids))

    @rule(count=st.integers(30, 90))
    def extend_by_many(self, count: int) -> None:
        fresh = [new_id() for _ in range(count)]
        self.both(lambda: self.p.extend(fresh), lambda: self.model.extend(fresh))

    @rule(index=indices, uid=ids)
    def insert(self, index: int, uid: UUID) -> None:
        self.both(lambda: self.p.insert(index, uid), lambda: self.model.insert(index, uid))

    @rule(uid=ids)
    def remove(self, uid: UUID) -> None:
        self.both(lambda: self.p.remove(uid), lambda: self.model.remove(uid))

    @rule(seed=st.integers(0, 99), share=st.floats(0, 1))
    def remove_many_anywhere(self, seed: int, share: float) -> None:
        chosen = random.Random(seed).sample(self.model, int(len(self.model) * share))
        for uid in chosen:
            self.p.remove(uid)
            self.model.remove(uid)

    @rule(seed=st.integers(0, 99), times=st.integers(1, 40))
    def pop_many_by_index(self, seed: int, times: int) -> None:
        dice = random.Random(seed)
        for _ in range(min(times, len(self.model))):
            index = dice.randrange(-len(self.model), len(self.model))
            assert self.p.pop(index) == self.model.pop(index)

    @rule(index=indices)
    def pop(self, index: int) -> None:
        self.both(lambda: self.p.pop(index), lambda: self.model.pop(index))

    @rule()
    def pop_last(self) -> None:
        self.both(self.p.pop, self.model.pop)

    @rule()
    def popleft(self) -> None:
        self.both(self.p.popleft, lambda: self.model.pop(0))

    @rule()
    def clear(self) -> None:
        self.both(self.p.clear, self.model.clear)

    @rule(i=indices, j=indices)
    def move(self, i: int, j: int) -> None:
        def on_list() -> None:
            place = range(len(self.model))[j]
            self.model.insert(place, self.model.pop(i))

        self.both(lambda: self.p.move(i, j), on_list)

    @rule(i=indices, j=indices)
    def swap(self, i: int, j: int) -> None:
        def on_list() -> None:
            self.model[i], self.model[j] = self.model[j], self.model[i]

        self.both(lambda: self.p.swap(i, j), on_list)

    @rule()
    def reverse(self) -> None:
        self.both(self.p.reverse, self.model.reverse)

    @rule(uids=many_ids)
    def include(self, uids: list[UUID]) -> None:
        fresh = [uid for uid in dict.fromkeys(uids) if uid not in self.model]
        self.model += fresh
        assert self.p.include(uids) is bool(fresh)

    @rule(uid=ids)
    def include_one(self, uid: UUID) -> None:
        expected = uid not in self.model
        self.model += [uid] * expected
        assert self.p.include(uid) is expected

    @rule(uids=many_ids)
    def exclude(self, uids: list[UUID]) -> None:
        expected = any(uid in self.model for uid in uids)
        self.model = [uid for uid in self.model if uid not in uids]
        assert self.p.exclude(uids) is expected

    @rule(uid=ids)
    def exclude_one(self, uid: UUID) -> None:
        expected = uid in self.model
        self.model = [other for other in self.model if other != uid]
        assert self.p.exclude(uid) is expected

    @rule(index=indices, uid=ids)
    def set_index(self, index: int, uid: UUID) -> None:
        self.both(
            lambda: self.p.__setitem__(index, uid), lambda: self.model.__setitem__(index, uid)
        )

    @rule(where=slices, uids=many_ids)
    def set_slice(self, where: slice, uids: list[UUID]) -> None:
        self.both(
            lambda: self.p.__setitem__(where, uids), lambda: self.model.__setitem__(where, uids)
        )

    @rule(index=indices)
    def delete_index(self, index: int) -> None:
        self.both(lambda: self.p.__delitem__(index), lambda: self.model.__delitem__(index))

    @rule(where=slices)
    def delete_slice(self, where: slice) -> None:
        self.both(lambda: self.p.__delitem__(where), lambda: self.model.__delitem__(where))

    @rule(index=indices, where=slices)
    def read(self, index: int, where: slice) -> None:
        self.both(lambda: self.p[index], lambda: self.model[index])
        assert self.p[where] == self.model[where]
        for position in range(0, len(self.model), 7):
            assert self.p[position] == self.model[position]

    @rule(uid=ids, start=indices, stop=indices)
    def find(self, uid: UUID, start: int, stop: int) -> None:
        self.both(lambda: self.p.index(uid), lambda: self.model.index(uid))
        self.both(lambda: self.p.index(uid, start), lambda: self.model.index(uid, start))
        self.both(
            lambda: self.p.index(uid, start, stop), lambda: self.model.index(uid, start, stop)
        )
        assert self.p.count(uid) == self.model.count(uid)

    @invariant()
    def same_ids(self) -> None:
        assert list(self.p) == self.model
        assert len(self.p) == len(self.model)
        assert bool(self.p) is bool(self.model)
        assert [uid in self.p for uid in IDS] == [uid in self.model for uid in IDS]
        assert list(reversed(self.p)) == self.model[::-1]
        if self.model:
            assert (self.p[0], self.p[-1]) == (self.model[0], self.model[-1])

    @invariant()
    def an_unchanged_revision_means_an_unchanged_beginning(self) -> None:
        for revision, before in self.seen:
            if revision == self.p.revision and len(self.model) >= len(before):
                assert self.model[: len(before)] == before
        self.seen = [*self.seen[-5:], (self.p.revision, self.model.copy())]


class SlotModel(ListModel):
    """Also looks inside, with the limits set low so that every path is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = patch.multiple(progression, _MAX_GAPS=5, _MIN_HOLES_TO_COMPACT=8)
        self.limits.start()

    def teardown(self) -> None:
        self.limits.stop()

    @invariant()
    def the_slots_keep_their_rules(self) -> None:
        p, hole = self.p, progression._HOLE
        where: dict[int, list[int]] = {}
        for slot, uid in enumerate(p._slots):
            if uid is not hole:
                where.setdefault(uid.int, []).append(slot)
        holes = [slot for slot, uid in enumerate(p._slots) if uid is hole]
        inner = [slot for slot in holes if slot > p._start]
        assert p._first_slots == {key: spots[0] for key, spots in where.items()}
        assert {k: list(s) for k, s in p._repeats.items()} == {
            key: spots for key, spots in where.items() if len(spots) > 1
        }
        assert holes == [*range(p._start), *inner]
        assert p._holes == len(inner)
        assert not p._gaps or p._gaps == inner
        assert not p._slots or p._slots[-1] is not hole
        assert len(holes) <= max(8, len(p._slots) / 2)


class SubclassModel(ListModel):
    kind = ListProgression


TestProgressionBehavesAsAList = ListModel.TestCase
TestProgressionKeepsTheRulesOfItsSlots = SlotModel.TestCase
TestSubclassWithItsOwnStorageBehavesAsAList = SubclassModel.TestCase


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts, in its only entry, how many ids were put into slots: the work of every rewrite."""
    counter = [0]
    store = Progression._store

    def counting(self: Progression, ids: list[UUID]) -> None:
        counter[0] += len(ids)
        store(self, ids)

    monkeypatch.setattr(Progression, "_store", counting)
    return counter


def shuffled(order: list[UUID]) -> list[UUID]:
    return random.Random(7).sample(order, len(order))


def remove_all(p: Progression, order: list[UUID]) -> None:
    for uid in order:
        p.remove(uid)


def until_empty(step: Callable[[Progression], object]) -> Callable[[Progression], None]:
    def run(p: Progression) -> None:
        while len(p) > 1:
            step(p)

    return run


@pytest.mark.parametrize(
    "drain",
    [
        pytest.param(lambda p: remove_all(p, list(p)), id="remove front to back"),
        pytest.param(lambda p: remove_all(p, list(p)[::-1]), id="remove back to front"),
        pytest.param(lambda p: remove_all(p, shuffled(list(p))), id="remove in any order"),
        pytest.param(until_empty(lambda p: p.remove(p[0])), id="remove p[0]"),
        pytest.param(until_empty(lambda p: p.remove(p[-1])), id="remove p[-1]"),
        pytest.param(until_empty(lambda p: p.pop()), id="pop"),
        pytest.param(until_empty(lambda p: p.popleft()), id="popleft"),
        pytest.param(until_empty(lambda p: p.pop(1)), id="pop(1), keeping the first"),
        pytest.param(until_empty(lambda p: p.__delitem__(0)), id="del p[0]"),
        pytest.param(until_empty(lambda p: p.exclude(p[0])), id="exclude"),
    ],
)
@pytest.mark.parametrize("repeats", [1, 3])
def test_emptying_a_progression_takes_work_linear_in_its_length(
    placed: list[int], drain: Callable[[Progression], None], repeats: int
):
    p = Progression([new_id() for _ in range(9000 // repeats)] * repeats)
    placed[0] = 0
    drain(p)
    assert len(p) <= 1
    assert placed[0] <= 9000


def test_looking_at_both_ends_between_removals_anywhere_stays_linear(placed: list[int]):
    p = Progression(new_id() for _ in range(9000))
    order = shuffled(list(p))
    placed[0] = 0
    for uid in order[:-1]:
        p.remove(uid)
        assert p[0] in p
        assert p[-1] in p
    assert placed[0] <= 9000


def test_reading_by_index_between_removals_seldom_squeezes_the_holes_out(placed: list[int]):
    p = Progression(new_id() for _ in range(4000))
    placed[0] = 0
    dice = random.Random(3)
    for _ in range(1000):
        p.pop(dice.randrange(len(p)))
    assert placed[0] == 0


def test_a_window_that_appends_and_drops_the_oldest_stays_small():
    p = Progression()
    for _ in range(10_000):
        p.append(new_id())
        if len(p) > 10:
            p.popleft()
    assert len(p._slots) < 100


def test_a_short_slice_of_a_long_progression_does_not_copy_it(monkeypatch: pytest.MonkeyPatch):
    order = [new_id() for _ in range(1000)]
    p = Progression(order)
    monkeypatch.setattr(Progression, "__iter__", None)
    assert p[-10:] == order[-10:]


def test_iteration_shows_what_stood_there_when_it_began():
    order = [new_id() for _ in range(100)]
    p = Progression(order)
    shown = []
    for uid in p:
        shown.append(uid)
        p.remove(uid)
        p.append(new_id())
    assert shown == order
    assert len(p) == 100


def test_ids_elements_and_strings_name_the_same_entry():
    one, two = Element(), Element()
    p = Progression([one, two.id, str(one.id)])
    assert list(p) == [one.id, two.id, one.id]
    assert one in p
    assert str(two.id) in p
    p.append(two)
    p.insert(0, str(two.id))
    p[1] = two
    assert list(p) == [two.id, two.id, two.id, one.id, two.id]
    assert p.index(str(one.id)) == 3
    assert p.exclude(two)
    assert list(p) == [one.id]


@pytest.mark.parametrize("junk", [None, 5, "nonsense", object(), [], b""])
def test_junk_is_simply_not_in_a_progression(junk: object):
    assert junk not in Progression(IDS)


def test_an_element_is_one_id_to_include_and_exclude_even_when_it_holds_ids():
    inner = Progression(IDS)
    p = Progression()
    assert p.include(inner)
    assert list(p) == [inner.id]
    assert p.include(list(inner))
    assert list(p) == [inner.id, *IDS]
    assert p.exclude(inner)
    assert list(p) == IDS


def test_removing_a_missing_id_is_a_key_error_that_names_it():
    missing = new_id()
    with pytest.raises(NotFoundError, match=str(missing)):
        Progression(IDS).remove(missing)
    with pytest.raises(KeyError):
        Progression(IDS).index(missing)


@pytest.mark.parametrize(
    "action",
    [
        lambda p: p[3],
        lambda p: p[-4],
        lambda p: p.pop(3),
        lambda p: p.__setitem__(3, IDS[0]),
        lambda p: p.__delitem__(-4),
        lambda p: p.move(0, 3),
        lambda p: p.move(-4, 0),
        lambda p: p.swap(0, 3),
    ],
)
def test_an_index_past_either_end_is_an_error_naming_index_and_length(action):
    p = Progression(IDS[:3])
    with pytest.raises(OutOfRangeError, match=r"Index (3|-4) is out of range for length 3"):
        action(p)
    assert (list(p), p.revision) == (IDS[:3], 0)


def test_taking_from_an_empty_progression_says_that_it_is_empty():
    with pytest.raises(OutOfRangeError, match="empty"):
        Progression().pop()
    with pytest.raises(IndexError):
        Progression().popleft()


def test_an_index_that_is_no_int_is_refused():
    with pytest.raises(InvalidTypeError, match=r"1\.5"):
        Progression(IDS)[1.5]  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(InvalidTypeError, match="'a'"):
        Progression(IDS).insert("a", IDS[0])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("junk", [5, "abc", IDS[0], None, [1], ["abc"], [IDS[0], None]])
def test_an_order_that_is_not_an_iterable_of_ids_is_refused(junk):
    with pytest.raises(ValidationError):
        Progression(junk)
    p = Progression(IDS)
    with pytest.raises(ValidationError):
        p.extend(junk)
    assert list(p) == IDS


def test_a_single_id_given_as_a_string_is_not_taken_for_an_order():
    with pytest.raises(InvalidTypeError, match="put it in a list"):
        Progression(str(IDS[0]))


def test_a_slice_assignment_of_the_wrong_size_changes_nothing():
    p = Progression(IDS)
    with pytest.raises(ValidationError, match="size 1"):
        p[::2] = IDS[:1]
    assert (list(p), p.revision) == (IDS, 0)


def test_move_takes_an_entry_to_exactly_the_index_given():
    a, b, c, d = IDS[:4]
    p = Progression([a, b, c, d])
    p.move(0, -1)
    assert list(p) == [b, c, d, a]
    p.move(-1, 1)
    assert list(p) == [b, a, c, d]


@pytest.mark.parametrize(
    "change",
    [
        lambda p, uid: p.append(uid),
        lambda p, uid: p.extend([IDS[0], uid, IDS[1]]),
        lambda p, uid: p.insert(0, uid),
        lambda p, uid: p.insert(99, uid),
        lambda p, uid: p.include([IDS[5], uid]),
        lambda p, uid: p.__setitem__(1, uid),
        lambda p, uid: p.__setitem__(slice(0, 2), [uid, IDS[0]]),
    ],
)
@pytest.mark.parametrize("kind", [Progression, ListProgression])
def test_a_refused_id_changes_nothing_at_all(kind: type[Progression], change):
    class Picky(kind):
        def _admit(self, ids: Sequence[UUID]) -> None:
            if refused in ids:
                raise NotFoundError("refused")

    refused = new_id()
    p = Picky()
    p.extend(IDS[:4])
    with pytest.raises(NotFoundError, match="refused"):
        change(p, refused)
    assert (list(p), p.revision) == (IDS[:4], 0)
    change(p, new_id())
    assert list(p) != IDS[:4]


def test_extend_asks_once_for_all_ids():
    asked: list[Sequence[UUID]] = []

    class Asking(Progression):
        def _admit(self, ids: Sequence[UUID]) -> None:
            asked.append(tuple(ids))

    Asking().extend(IDS)
    assert asked == [tuple(IDS)]


def test_appending_keeps_the_revision_and_anything_else_changes_it():
    p = Progression(IDS)
    p.append(IDS[0])
    p.extend(IDS)
    p.include(new_id())
    p += [new_id()]
    p.insert(len(p), new_id())
    assert p.revision == 0
    p.pop()
    p.append(new_id())
    assert p.revision != 0


def test_what_changes_nothing_keeps_the_revision():
    p = Progression(IDS)
    p.swap(1, 1)
    p.move(2, -4)
    p.exclude(new_id())
    p.exclude([])
    p.extend([])
    del p[3:3]
    p[2:2] = []
    Progression().clear()
    assert (list(p), p.revision) == (IDS, 0)


def test_extending_a_progression_by_itself_doubles_it():
    p = Progression(IDS)
    p.extend(p)
    assert list(p) == IDS * 2


def test_the_nil_uuid_is_an_id_like_any_other():
    nil = UUID(int=0)
    p = Progression([IDS[0], nil, IDS[1], IDS[2]])
    p.remove(IDS[1])
    assert list(p) == [IDS[0], nil, IDS[2]]
    p.remove(nil)
    assert list(p) == [IDS[0], IDS[2]]


def test_a_name_is_a_string_with_something_in_it():
    assert Progression(name="main").name == "main"
    assert Progression().name is None
    with pytest.raises(ValidationError, match="empty"):
        Progression(name="")
    with pytest.raises(InvalidTypeError, match="5"):
        Progression(name=5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(AttributeError):
        Progression().name = "x"  # pyright: ignore[reportAttributeAccessIssue]


def test_equality_goes_by_id_not_by_order():
    p = Progression(IDS)
    assert p != Progression(IDS)
    assert p == Progression(id=p.id)
    assert p != IDS


def test_it_counts_as_a_mutable_sequence():
    assert isinstance(Progression(), MutableSequence)


def test_the_repr_names_it_and_tells_its_length():
    assert repr(Progression(IDS, "main")).startswith("Progression('main', len=6, id='")


@pytest.mark.parametrize(
    "twin_of", [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))]
)
def test_a_copy_is_independent_of_its_original(twin_of):
    p = Progression([*IDS, *IDS], "main")
    p.remove(IDS[2])
    order = list(p)
    twin = twin_of(p)
    assert (twin, twin.name, list(twin)) == (p, "main", order)
    twin.remove(IDS[3])
    twin.append(new_id())
    twin.exclude(IDS[1])
    assert list(p) == order
    assert [p.index(uid) for uid in IDS] == [order.index(uid) for uid in IDS]
