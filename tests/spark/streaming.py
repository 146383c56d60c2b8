"""Streams of the data source that a test runs to their end, on Spark or in its own process."""

import json
import pickle

from ottla.scan import schemas


class Stream:
    """A query up to what is available now, which goes on at the next `run`.

    It calls the reader of a stream in this process as Spark does: positions become JSON, tasks are pickled.
    """

    def __init__(self):
        self._end = None

    def run(self, **given):
        """Return the new rows."""
        from ottla.spark_jobs.source import OttlaSource
        from ottla.spark_jobs.stream.stream_options import stream_options

        OttlaSource(given).schema()
        options = stream_options(given)
        driver, executor = _reader(options), _reader(options)
        if self._end is None:
            self._end = _as_json(driver.initialOffset())
        driver.prepareForTriggerAvailableNow()
        rows = []
        while (end := _as_json(driver.latestOffset(self._end, driver.getDefaultReadLimit()))) != self._end:
            for task in driver.partitions(self._end, end):
                task_reader, part = pickle.loads(pickle.dumps((executor, task)))
                rows += [row for batch in task_reader.read(part) for row in batch.to_pylist()]
            driver.commit(end)
            self._end = end
        return rows


def _reader(options):
    from ottla.spark_jobs.stream.alert_stream import AlertStream
    from ottla.spark_jobs.stream.record_stream import RecordStream

    view = options.read.view
    fields = [(name, True) for name in schemas.VIEWS[view]]
    return (AlertStream if view == schemas.HANGING else RecordStream)(options, fields)


def _as_json(position):
    return json.loads(json.dumps(position))


def read_to_end(stream, checkpoint):
    """Return the new rows of a query on Spark that continues from this checkpoint."""
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
