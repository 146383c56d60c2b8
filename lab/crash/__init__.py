"""Tests of the broker on log directories after crashes, power losses and damage to files. free"""
