"""Checks of an audit, one a module: what the scan knows to findings. No Spark, no files in here. free"""
