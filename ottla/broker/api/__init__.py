"""One file per API: unpack the request, call the domain, pack the reply."""
