"""Spark's Kafka source and sink: `spark_kafka.py JARS FOLDER OPERATION ARGUMENTS`, the last in JSON.

It runs on the Spark of the source's version, see test_spark_kafka.py.
"""

import json
import sys

from pyspark.sql import SparkSession

COLUMNS = """partition AS partition, offset AS offset, unix_millis(timestamp) AS timestamp, hex(key) AS key,
    hex(value) AS value, transform(headers, each -> struct(each.key, hex(each.value) AS value)) AS headers"""
ROWS = """CAST(id % 3 AS INT) AS partition, CAST(id AS STRING) AS key, CONCAT('row ', id) AS value,
    array(struct('number' AS key, CAST(CAST(id AS STRING) AS BINARY) AS value)) AS headers"""


def write_batch(spark, count, options):
    """Write the rows of a range."""
    spark.sql(f"SELECT {ROWS} FROM range({count})").write.format("kafka").options(**options).save()


def read_batches(spark, *queries):
    """Print what each query reads, a line for each."""
    for options in queries:
        spark.read.format("kafka").options(**options).load().createOrReplaceTempView("records")
        rows = spark.sql(f"SELECT {COLUMNS} FROM records ORDER BY partition, offset").collect()
        print(json.dumps(rows))


def copy_stream(spark, source, sink):
    """Copy records until the process is killed."""
    records = spark.readStream.format("kafka").options(**source).load().select("partition", "key", "value")
    records.writeStream.format("kafka").options(**sink).start().awaitTermination()


def main(jars, folder, operation, arguments):
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.local.dir", folder)
        .config("spark.driver.extraJavaOptions", f"-Djava.io.tmpdir={folder}")
        .config("spark.sql.shuffle.partitions", 1)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    {"write": write_batch, "read": read_batches, "copy": copy_stream}[operation](spark, *json.loads(arguments))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
