"""Pieces of `transaction_size.py`. free"""
