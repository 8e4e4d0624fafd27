"""
Errors, where they surface, and reports when memory runs out.
"""
