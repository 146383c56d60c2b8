"""Frames, requests and responses."""
