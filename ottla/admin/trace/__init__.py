"""Requests and replies as they pass, decoded for listeners at the admin port."""
