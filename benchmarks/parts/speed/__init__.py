"""Pieces of `speed.py`. free"""
