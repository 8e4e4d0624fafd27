"""Faults planted by people who had read no rule of jaxmon, and healthy programs."""
