"""An audit from its arguments to its verdict: list, plan, let tasks read, merge what they know, judge. free"""
