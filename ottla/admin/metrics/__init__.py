"""Metrics of the admin port for Prometheus: `/metrics`. free"""
