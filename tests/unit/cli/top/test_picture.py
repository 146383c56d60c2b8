"""Order of the rows of `ottla top`: the most urgent problems come first."""

from ottla.cli.top.picture import (
    Ends,
    GroupLag,
    HeldBack,
    ListedGroup,
    Ongoing,
    Picture,
    by_pain,
    group_lag,
    held_back,
    ongoing,
    places_text,
    sentence,
)
from ottla.verdict import KnownTransaction, OpenTransaction, Standing, Verdict

NOW_MS = 1_700_000_000_000


def transaction(name, age_ms, left_ms, state="Ongoing"):
    return Ongoing(name, state, 1, 7, 0, age_ms, left_ms, (("ledger", 0),), left_ms is not None and left_ms < 0)


def partition(topic, standing, age_ms=0, held=1, transactional_id="tx"):
    return HeldBack(topic, 0, Ends(10, 10 + held), age_ms, transactional_id, 7, standing)


def group(group_id, **fields):
    return GroupLag(group_id, "classic", "Stable", None, None, 1, 1, 0, 0)._replace(**fields)


def test_rows_sort_by_forgotten_then_overdue_then_age():
    picture = by_pain(
        Picture(
            NOW_MS,
            [transaction("young", 5, 50), transaction("old", 90, 10), transaction("late", 40, -1)],
            [
                partition("waits", Standing.IN_TIME, 99),
                partition("older", Standing.OVERDUE, 20),
                partition("late", Standing.OVERDUE, 10),
                partition("lost", Standing.FORGOTTEN, 1),
            ],
            [group("a", lag=3, stable_lag=1), group("b", lag=30)],
        )
    )
    assert [each.transactional_id for each in picture.transactions] == ["late", "old", "young"]
    assert [each.topic for each in picture.held_back] == ["lost", "older", "late", "waits"]
    assert [each.group_id for each in picture.groups] == ["b", "a"]
    assert sentence(picture) == (
        "3 open transactions, 1 overdue; 4 offsets held back in 4 partitions (1 of them by a transaction that will "
        "never end); 2 groups, the largest lag is 30."
    )
    assert sentence(Picture(NOW_MS)) == "0 open transactions, 0 overdue; 0 offsets held back in 0 partitions; 0 groups."


def test_a_filter_finds_names_in_all_tables():
    picture = Picture(
        NOW_MS,
        [transaction("order-1", 1, 1), transaction("other", 1, 1)._replace(partitions=(("Orders", 3),))],
        [partition("ledger", Standing.IN_TIME, transactional_id="ORDER-1"), partition("x", Standing.IN_TIME)],
        [group("reorder"), group("b"), group("c", type="consumer", state="Reconciling")],
    )
    assert [each.group_id for each in picture.matching("CONSUMER").groups] == ["c"]
    assert [each.group_id for each in picture.matching("reconc").groups] == ["c"]
    found = picture.matching("order")
    assert [each.transactional_id for each in found.transactions] == ["order-1", "other"]
    assert [each.topic for each in found.held_back] == ["ledger"]
    assert [each.group_id for each in found.groups] == ["reorder"]


def test_the_time_left_and_the_age_are_those_of_the_coordinator():
    places = frozenset((("b", 0), ("a", 1)))
    known = KnownTransaction("tx", 1, "Ongoing", 7, 2, 60_000, NOW_MS - 70_000, places)
    assert ongoing(known, NOW_MS) == Ongoing("tx", "Ongoing", 1, 7, 2, 70_000, -10_000, (("a", 1), ("b", 0)))
    ending = ongoing(known._replace(state="PrepareCommit", start_ms=-1), NOW_MS)
    assert (ending.age_ms, ending.time_left_ms) == (None, None)


def test_a_partition_is_held_back_since_its_transaction_began_or_since_it_was_seen_to_be():
    opened = OpenTransaction("ledger", 0, 7, 0, -1, 10, NOW_MS - 5_000)
    lost = held_back(("ledger", 0), Ends(10, 14), (opened, Verdict(Standing.FORGOTTEN, "")), NOW_MS - 100, NOW_MS)
    assert (lost.records, lost.age_ms, lost.producer_id, lost.transactional_id) == (4, 5_000, 7, None)
    unknown = held_back(("ledger", 0), Ends(10, 14), None, NOW_MS - 100, NOW_MS)
    assert (unknown.age_ms, unknown.standing) == (100, Standing.UNKNOWN)


def test_lag_counts_to_the_high_watermark_and_below_the_last_stable_offset():
    ends = {("a", 0): Ends(10, 15), ("a", 1): Ends(20, 20)}
    committed = [(("a", 0), 4), (("a", 1), 25), (("deleted", 0), 1)]
    listed = ListedGroup("readers", "consumer", "Assigning", 5, 4, 1)
    assert group_lag(listed, committed, ends) == GroupLag("readers", "consumer", "Assigning", 5, 4, 1, 3, 11, 6)
    assert group_lag(listed, [(("a", 0), 12)], ends)[-2:] == (3, 0)


def test_many_partitions_are_counted():
    places = [("t", number) for number in range(5)]
    assert places_text(places[:3]) == "t-0, t-1, t-2"
    assert places_text(places) == "t-0, t-1, t-2 and 2 more"
