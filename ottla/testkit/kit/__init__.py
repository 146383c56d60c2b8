"""The test kit as tests hold it: a broker of their own, what is in it, its time and its faults. free"""
