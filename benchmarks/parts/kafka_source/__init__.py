"""Pieces of `kafka_source.py`. free"""
