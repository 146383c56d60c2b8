"""The checks of an audit, what the scan knows to findings, and what several of them share. No Spark in here. free"""
