"""Streams of the data source that a test runs to their end."""


def read_to_end(stream, checkpoint):
    """Return the new rows of a query that continues from this checkpoint."""
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
