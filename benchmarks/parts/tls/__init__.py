"""Pieces of `tls.py`. free"""
