"""Requests and replies as they pass, decoded for whoever listens at the admin port."""
