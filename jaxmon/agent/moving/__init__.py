"""
Transfers between host and device.
"""
