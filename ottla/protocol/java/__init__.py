"""Text formats of Java: properties files, and login modules (JAAS). pure"""
