"""Readers of segment files: header rows, fates and records, in this process and without Spark. shell"""
