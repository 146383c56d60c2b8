"""Decoded records as Parquet files, which Spark itself reads while the log still has the records. free"""
