"""
Calls, and the time that sampled ones take.
"""
