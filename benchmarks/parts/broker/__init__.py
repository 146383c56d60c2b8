"""Pieces of `broker.py`. free"""
