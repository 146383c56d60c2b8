"""A broker in memory: its disk, clock, ports and requests, for tests without files and sockets. free"""
