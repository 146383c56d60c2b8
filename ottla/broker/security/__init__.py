"""Who may come in, and what is kept from others' eyes. frozen"""
