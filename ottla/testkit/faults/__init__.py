"""Planned faults, with counters. They work the same in an Ottla broker and in a proxy. pure"""
