"""Results of OffsetFetch, for tests of the code below it."""

from ottla.broker.group.commits import fetch_offset


def fetch(commits, group_id, topics, stable):
    """(error, [(topic, [(partition, offset)])]) of [(topic, partitions)], or of all that is committed."""
    error, offsets = commits.of_group(group_id)
    if error:
        return error, []
    if topics is None:
        by_topic = {}
        for topic, index in offsets.to_value()[0]:
            by_topic.setdefault(topic, []).append(index)
        topics = by_topic.items()
    return error, [
        (topic, [(index, fetch_offset(offsets, (topic, index), stable)) for index in indexes])
        for topic, indexes in topics
    ]
