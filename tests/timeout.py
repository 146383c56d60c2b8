"""Timeout of tests for an expected event. It only ends hangs: a busy machine takes a minute to start a broker."""

EVENT_TIMEOUT_S = 300
