"""Segment files to header rows, fates and records, in this process: no Spark in here. shell"""
