"""The topics, groups and transactional ids that the test kit removes after a test."""

from ottla.testkit.kit.leftovers import GROUP, TOPIC, Leftovers


def test_all_names_but_kept_ones_are_removed():
    leftovers = Leftovers(only_made=False)
    leftovers.keep(TOPIC, ["orders"])
    leftovers.note(TOPIC, "orders")
    assert leftovers.choose_removable(TOPIC, ["orders", "topic-1", "created-by-a-client"]) == [
        "topic-1",
        "created-by-a-client",
    ]
    assert leftovers.choose_removable(GROUP, ["orders"]) == ["orders"]
    assert leftovers.keeps(TOPIC)
    assert not leftovers.keeps(GROUP)


def test_on_a_shared_broker_only_names_that_the_kit_has_made_are_removed():
    leftovers = Leftovers(only_made=True)
    leftovers.note(TOPIC, "topic-1")
    assert leftovers.choose_removable(TOPIC, ["orders", "topic-1"]) == ["topic-1"]
    assert leftovers.choose_removable(GROUP, ["topic-1"]) == []
    leftovers.forget_made()
    assert leftovers.choose_removable(TOPIC, ["orders", "topic-1"]) == []
