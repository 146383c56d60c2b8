"""An audit for people and for programs. pure"""
