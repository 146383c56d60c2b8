"""Authentication, authorization and encryption. frozen"""
