"""The test kit's interface for tests: a broker, its content, its clock and its faults. free"""
