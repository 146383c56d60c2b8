"""Streams of the data source that a test runs to their end."""


def read_to_end(stream, checkpoint):
    """The rows that are new to a query that goes on from where this checkpoint stands."""
    found = []
    query = (
        stream.writeStream.foreachBatch(lambda table, _: found.extend(table.collect()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return found
