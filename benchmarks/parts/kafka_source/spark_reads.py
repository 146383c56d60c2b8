"""One Spark that reads on command, as a process: lines of JSON in, lines of JSON out. free

`kafka_source.py` starts it, also in an environment that has nothing but pyspark: it imports nothing else. The command
line is {"cores", "jars"}; a request {"do": "check" or "read", "format", "options", "load", "schema", "columns"}.
`check` gives what was read by partition, `read` the wall and CPU seconds of a read that keeps nothing.
"""

import json
import os
import sys
import time
from typing import Any

from parts.cpu_time import cpu_of_tree


def start(cores: int, jars: list[str]) -> Any:
    from pyspark.sql import SparkSession

    # The same interpreter for workers; the same settings for both sources.
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
    reader = spark.read.format(request["format"]).options(**request["options"])
    if request["schema"]:
        reader = reader.schema(request["schema"])
    return (reader.load(request["load"]) if request["load"] else reader.load()).select(*request["columns"])


def check(rows: Any) -> list[list[int]]:
    """By partition: records, and sums over offsets, times and the CRCs of keys and values."""
    import pyspark.sql.functions as f

    sums = [f.sum("offset"), f.sum(f.unix_millis("timestamp")), f.sum(f.crc32("key")), f.sum(f.crc32("value"))]
    return [list(row) for row in rows.groupBy("partition").agg(f.count("*"), *sums).orderBy("partition").collect()]


def read(rows: Any) -> dict[str, float | None]:
    began, before = time.perf_counter(), cpu_of_tree()
    rows.write.format("noop").mode("overwrite").save()
    wall_s, after = time.perf_counter() - began, cpu_of_tree()
    return {"wall_s": wall_s, "cpu_s": None if before is None or after is None else after - before}


def main() -> None:
    # What Spark and its JVM print goes to stderr: stdout is for answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spark = start(**json.loads(sys.argv[1]))
    print(json.dumps({"spark": spark.version}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        rows = frame(spark, request)
        print(json.dumps(check(rows) if request["do"] == "check" else read(rows)), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
