"""Copy a topic until SIGTERM with a framework: `python_applications.py NAME BOOTSTRAP GROUP SOURCE SINK`.

They run in an environment of their own, see test_python_applications.py.
"""

import asyncio
import sys


def run_quix(bootstrap, group, source, sink):
    from quixstreams import Application

    application = Application(
        bootstrap,
        consumer_group=group,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_every=100,
    )
    records = application.dataframe(application.topic(source, value_deserializer="bytes"))
    records.to_topic(application.topic(sink, value_serializer="bytes"))
    application.run()


def run_faststream(kafka_broker, bootstrap, group, source, sink):
    from faststream import AckPolicy, FastStream

    broker = kafka_broker(bootstrap)

    @broker.publisher(sink)
    @broker.subscriber(source, group_id=group, auto_offset_reset="earliest", ack_policy=AckPolicy.ACK)
    async def copy(value: str) -> str:
        return value

    asyncio.run(FastStream(broker).run())


def main(name, *addresses):
    if name == "quix":
        run_quix(*addresses)
    elif name == "faststream-kafka":
        from faststream.kafka import KafkaBroker

        run_faststream(KafkaBroker, *addresses)
    else:
        from faststream.confluent import KafkaBroker

        run_faststream(KafkaBroker, *addresses)


if __name__ == "__main__":
    main(*sys.argv[1:])
