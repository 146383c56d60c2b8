"""Handlers of the APIs, one file each: unpack the request, call the domain, pack the reply."""
