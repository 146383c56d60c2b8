"""An audit from its arguments to its verdict: list, plan, read in tasks, merge their results, check them. free"""
