"""Reports of an audit for people and for programs. pure"""
