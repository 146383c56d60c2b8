"""Process with one Spark that reads on request: lines of JSON in, lines of JSON out. free

`kafka_source.py` starts it, also in an environment that has only pyspark, so it imports nothing else. The command
line is {"cores", "jars"}; a request {"do": WORD, "format", "options", "load", "schema", "columns"}. `check` returns
counts and sums by partition, `read` the wall and CPU seconds of a read that drops the rows, `sum` those of sums over
all columns, `count` those of counts by partition, and `write` those of writing all rows as Parquet to "to". With the
format `cached`, "cache" is the folder of `ottla.spark_jobs.cached`.
"""

import json
import os
import sys
import time
from typing import Any

from parts.cpu_time import cpu_of_tree


def start(cores: int, jars: list[str]) -> Any:
    from pyspark.sql import SparkSession

    # Workers use this interpreter. Both sources get the same settings.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.jars", ",".join(jars))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def frame(spark: Any, request: dict[str, Any]) -> Any:
    if request["format"] == "cached":
        from ottla.spark_jobs import cached

        rows = cached(spark, request["load"], request["cache"], **request["options"])
        return rows.select(*request["columns"])
    reader = spark.read.format(request["format"]).options(**request["options"])
    if request["schema"]:
        reader = reader.schema(request["schema"])
    return (reader.load(request["load"]) if request["load"] else reader.load()).select(*request["columns"])


def check(rows: Any) -> list[list[int]]:
    """Return by partition the records and the sums of offsets, timestamps, and the CRCs of keys and values."""
    import pyspark.sql.functions as f

    sums = [f.sum("offset"), f.sum(f.unix_millis("timestamp")), f.sum(f.crc32("key")), f.sum(f.crc32("value"))]
    return [list(row) for row in rows.groupBy("partition").agg(f.count("*"), *sums).orderBy("partition").collect()]


def noop(rows: Any) -> None:
    rows.write.format("noop").mode("overwrite").save()


def sums(rows: Any) -> None:
    import pyspark.sql.functions as f

    lengths = [f.sum(f.length(name)) for name in ("key", "value")]
    rows.groupBy("partition").agg(f.count("*"), f.sum("offset"), f.max("timestamp"), *lengths).collect()


def counts(rows: Any) -> None:
    import pyspark.sql.functions as f

    rows.groupBy("partition").agg(f.count("*"), f.max("offset"), f.max("timestamp")).collect()


def measure(spark: Any, request: dict[str, Any], action: Any) -> dict[str, float | None]:
    """Return the wall and CPU seconds of a request, with its planning, which brings a cache up to date."""
    began, before = time.perf_counter(), cpu_of_tree()
    action(frame(spark, request))
    wall_s, after = time.perf_counter() - began, cpu_of_tree()
    # The CPU time of a worker that has ended is lost, so the sum may have become smaller: it is not known then.
    is_known = before is not None and after is not None and after >= before
    return {"wall_s": wall_s, "cpu_s": after - before if is_known else None}


def answer(spark: Any, request: dict[str, Any]) -> Any:
    if request["do"] == "check":
        return check(frame(spark, request))
    if request["do"] == "write":
        rows = frame(spark, request)
        return measure(spark, request, lambda _: rows.write.partitionBy("topic", "partition").parquet(request["to"]))
    return measure(spark, request, {"sum": sums, "count": counts, "read": noop}[request["do"]])


def main() -> None:
    # Output of Spark and its JVM goes to stderr, because stdout carries the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spark = start(**json.loads(sys.argv[1]))
    print(json.dumps({"spark": spark.version}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(spark, json.loads(line))), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
