"""Pieces of `others.py`. free"""
