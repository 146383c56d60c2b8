"""Decoded records kept as Parquet: read again by Spark itself, and valid only while the log still has them. free"""
