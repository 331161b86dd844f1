"""A flow keeps items and orders true to each other, whichever way they are changed."""

import copy
import pickle
from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sennit.containers import Element, Flow, Pile, Progression
from sennit.errors import ExistsError, InvalidTypeError, NotFoundError, ValidationError
from sennit.ids import new_id


class Note(Element):
    __slots__ = ()


NOTES = [Note() for _ in range(6)]
NAMES = ["a", "b", "c"]

notes = st.sampled_from(NOTES)
names = st.sampled_from(NAMES)


def make_flow() -> Flow[Note, Progression]:
    """Four items; "main" holds all of them, "side" the first two."""
    return Flow(NOTES[:4], [Progression(NOTES[:4], "main"), Progression(NOTES[:2], "side")])


def orders(flow: Flow[Note, Progression]) -> dict[str | None, list[UUID]]:
    return {p.name: list(p) for p in flow.progressions}


class FlowModel(RuleBasedStateMachine):
    """Do the same to a flow, through itself or its parts, and to plain lists."""

    @initialize()
    def begin(self) -> None:
        self.flow: Flow[Note, Progression] = Flow()
        self.items: list[Note] = []
        self.orders: dict[str | None, list[UUID]] = {}

    @rule(note=notes, into=st.lists(names, max_size=2, unique=True))
    def add_item(self, note: Note, into: list[str]) -> None:
        if not set(into) <= set(self.orders):
            with pytest.raises(NotFoundError):
                self.flow.add_item(note, into)
        elif note in self.items:
            with pytest.raises(ExistsError):
                self.flow.add_item(note, into)
        else:
            self.flow.add_item(note, into)
            self.items.append(note)
            for name in into:
                self.orders[name].append(note.id)

    @rule(note=notes, directly=st.booleans())
    def remove_item(self, note: Note, directly: bool) -> None:
        remove = self.flow.items.remove if directly else self.flow.remove_item
        if note in self.items:
            assert remove(note.id) is note
            self.items.remove(note)
            for order in self.orders.values():
                order[:] = [uid for uid in order if uid != note.id]
        else:
            with pytest.raises(NotFoundError):
                remove(note.id)

    @rule(name=names, over=st.lists(notes, max_size=4), directly=st.booleans())
    def add_progression(self, name: str, over: list[Note], directly: bool) -> None:
        add = self.flow.progressions.add if directly else self.flow.add_progression
        made = Progression(over, name)
        if name in self.orders:
            with pytest.raises(ExistsError):
                add(made)
        elif not set(over) <= set(self.items):
            with pytest.raises(NotFoundError):
                add(made)
        else:
            add(made)
            self.orders[name] = [note.id for note in over]

    @rule(name=names, directly=st.booleans())
    def remove_progression(self, name: str, directly: bool) -> None:
        if name not in self.orders:
            with pytest.raises(NotFoundError):
                self.flow.remove_progression(name)
            return
        found = self.flow.get_progression(name)
        if directly:
            self.flow.progressions.remove(found)
        else:
            assert self.flow.remove_progression(name) is found
        assert list(found) == self.orders.pop(name)
        found.append(new_id())

    @rule(name=names, more=st.lists(notes, max_size=3), at=st.integers(0, 3))
    def write_to_a_progression(self, name: str, more: list[Note], at: int) -> None:
        if name not in self.orders:
            return
        found = self.flow.get_progression(name)
        if set(more) <= set(self.items):
            found[at:at] = more
            self.orders[name][at:at] = [note.id for note in more]
        else:
            with pytest.raises(NotFoundError):
                found[at:at] = more

    @rule()
    def clear_items(self) -> None:
        self.flow.items.clear()
        self.items.clear()
        for order in self.orders.values():
            order.clear()

    @rule()
    def clear(self) -> None:
        self.flow.clear()
        self.items.clear()
        self.orders.clear()

    @invariant()
    def same_items_and_orders(self) -> None:
        assert list(self.flow.items) == self.items
        assert orders(self.flow) == self.orders
        for name in NAMES:
            found = self.flow.get_progression(name, None)
            assert (found is None) is (name not in self.orders)
            if found is not None:
                assert self.flow.get_progression(found.id) is found


TestFlowKeepsItemsAndOrdersTrueToEachOther = FlowModel.TestCase


def test_a_progression_is_found_by_name_id_string_and_itself():
    flow = make_flow()
    main = flow.get_progression("main")
    for ref in (main, main.id, str(main.id)):
        assert flow.get_progression(ref) is main


def test_an_empty_progression_is_found_too():
    flow: Flow[Note, Progression] = Flow(progressions=[Progression(name="empty")])
    assert flow.get_progression("empty", None) is not None


def test_a_name_that_looks_like_an_id_is_found_as_a_name():
    uid = str(new_id())
    flow: Flow[Note, Progression] = Flow(progressions=[Progression(name=uid)])
    assert flow.get_progression(uid).name == uid


def test_a_missing_progression_is_an_error_naming_it_and_those_there_are():
    with pytest.raises(NotFoundError, match=r"'lost' in this flow; it has 'main', 'side'"):
        make_flow().get_progression("lost")
    assert make_flow().get_progression(new_id(), "default") == "default"
    with pytest.raises(InvalidTypeError, match="5"):
        make_flow().get_progression(5)  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_many_progressions_may_have_no_name():
    flow: Flow[Note, Progression] = Flow(progressions=[Progression(), Progression()])
    assert len(flow.progressions) == 2


def test_an_unknown_id_is_refused_by_every_way_into_an_attached_progression():
    flow = make_flow()
    main, unknown = flow.get_progression("main"), new_id()
    for action in (
        lambda: main.append(unknown),
        lambda: main.extend([NOTES[0].id, unknown]),
        lambda: main.insert(0, unknown),
        lambda: main.include(unknown),
        lambda: main.__setitem__(0, unknown),
        lambda: main.__setitem__(slice(None), [unknown]),
    ):
        with pytest.raises(NotFoundError, match=str(unknown)):
            action()
    assert list(main) == [note.id for note in NOTES[:4]]


def test_of_many_unknown_ids_an_error_lists_a_few():
    with pytest.raises(NotFoundError, match="and 7 more") as caught:
        make_flow().add_progression(Progression(new_id() for _ in range(10)))
    assert len(str(caught.value)) < 250


def test_a_removed_progression_is_free_again():
    flow = make_flow()
    side = flow.remove_progression("side")
    side.append(new_id())
    other: Flow[Note, Progression] = Flow()
    side.clear()
    other.add_progression(side)
    flow.add_progression(Progression(name="side"))
    assert other.get_progression("side") is side


def test_a_progression_of_another_flow_is_refused():
    flow, other = make_flow(), make_flow()
    with pytest.raises(ValidationError, match="belongs to another flow"):
        other.add_progression(flow.get_progression("main"))
    assert len(other.progressions) == 2
    with pytest.raises(NotFoundError):
        flow.get_progression("main").append(new_id())


def test_adding_the_same_progression_twice_is_refused_and_leaves_it_attached():
    flow = make_flow()
    main = flow.get_progression("main")
    with pytest.raises(ExistsError):
        flow.add_progression(main)
    with pytest.raises(NotFoundError):
        main.append(new_id())


def test_something_that_is_no_progression_is_refused():
    for progressions in ([], Pile[Progression]()):
        flow: Flow[Note, Progression] = Flow(progressions=progressions)
        with pytest.raises(InvalidTypeError):
            flow.progressions.add(NOTES[0])  # pyright: ignore[reportArgumentType]


def test_extending_the_progressions_is_all_or_nothing():
    flow = make_flow()
    good = Progression(NOTES[:1], "good")
    with pytest.raises(ExistsError, match="'main'"):
        flow.progressions.extend([good, Progression(name="main")])
    assert flow.get_progression("good", None) is None
    good.append(new_id())


def test_a_flow_that_cannot_be_built_leaves_its_parts_free():
    good, bad = Progression(NOTES[:1], "good"), Progression([new_id()], "bad")
    with pytest.raises(NotFoundError):
        Flow(NOTES, [good, bad])
    with pytest.raises(ExistsError):
        Flow(NOTES, [good, Progression(name="good")])
    flow = Flow(NOTES, [good])
    assert flow.get_progression("good") is good


def test_piles_that_are_passed_in_are_used_themselves():
    items, progressions = Pile(NOTES[:2]), Pile([Progression(NOTES[:2], "main")])
    flow = Flow(items, progressions)
    assert flow.items is items
    assert flow.progressions is progressions
    items.remove(NOTES[0])
    assert list(flow.get_progression("main")) == [NOTES[1].id]


def test_a_pile_belongs_to_one_flow_only():
    flow = make_flow()
    with pytest.raises(ValidationError, match="one flow only"):
        Flow(flow.items)
    with pytest.raises(ValidationError, match="one flow only"):
        Flow(NOTES, flow.progressions)
    with pytest.raises(NotFoundError):
        flow.get_progression("main").append(new_id())


def test_add_item_appends_to_the_progressions_named_in_any_way():
    flow = make_flow()
    main, side = flow.get_progression("main"), flow.get_progression("side")
    flow.add_item(NOTES[4], "main")
    flow.add_item(NOTES[5], [main.id, side])
    assert main[-2:] == [NOTES[4].id, NOTES[5].id]
    assert side[-1] == NOTES[5].id
    third = Note()
    flow.add_item(third, main)
    assert main[-1] == third.id


@pytest.mark.parametrize("progressions", [["main", "lost"], "lost", 5, [None]])
def test_an_item_for_an_unknown_progression_is_not_added_at_all(progressions):
    flow = make_flow()
    with pytest.raises((NotFoundError, InvalidTypeError)):
        flow.add_item(NOTES[5], progressions)
    assert NOTES[5] not in flow.items
    assert orders(flow) == orders(make_flow())


def test_an_item_that_one_progression_refuses_is_taken_back_everywhere():
    class Closed(Progression):
        def _admit(self, ids: Sequence[UUID]) -> None:
            raise PermissionError("closed")

    flow = make_flow()
    flow.add_progression(Closed(name="closed"))
    with pytest.raises(PermissionError):
        flow.add_item(NOTES[5], ["main", "closed"])
    assert NOTES[5] not in flow.items
    assert NOTES[5] not in flow.get_progression("main")


def test_an_item_is_found_by_id_or_default():
    flow = make_flow()
    assert flow.get_item(NOTES[0].id) is NOTES[0]
    assert flow.get_item(NOTES[5], None) is None
    with pytest.raises(NotFoundError, match=str(NOTES[5].id)):
        flow.get_item(NOTES[5])


def test_names_are_checked_and_shown():
    assert Flow(name="talk").name == "talk"
    assert repr(Flow(name="talk")).startswith("Flow('talk', items=0, progressions=0, id='")
    with pytest.raises(ValidationError, match="empty"):
        Flow(name="")


@pytest.mark.parametrize(
    "twin_of", [copy.copy, copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))]
)
def test_a_copy_is_whole_and_independent_of_its_original(twin_of):
    flow = make_flow()
    twin = twin_of(flow)
    assert twin == flow
    twin.remove_item(NOTES[0])
    twin.remove_progression("side")
    with pytest.raises(NotFoundError):
        twin.get_progression("main").append(new_id())
    assert list(flow.items) == NOTES[:4]
    assert orders(flow) == orders(make_flow())
    with pytest.raises(NotFoundError):
        flow.get_progression("side").append(new_id())
