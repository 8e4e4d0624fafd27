"""
What is known, put together for machines and for people.
"""
