"""What the admin port shows to Prometheus: `/metrics`. free"""
