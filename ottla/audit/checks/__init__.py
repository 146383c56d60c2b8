"""The checks of an audit, from results of the scan to findings, and their common parts. They do not use Spark. free"""
