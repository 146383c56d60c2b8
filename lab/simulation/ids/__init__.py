"""The simulation of producer ids from ZooKeeper: takers of ids, and planted bugs. free"""
