"""
What the time of a rank went into, by call: rows of numbers as text, each from one
number of calls to another.
"""

from __future__ import annotations


COLUMNS = (
    "calls",
    "seconds",
    "looks",
    "waits",
    "transfer",
    "data_wait",
    "python",
    "gil",
    "blocked",
    "compile",
    "held",
    "starved",
    "together",
    "alone",
    "known",
    "ahead",
    "behind",
)
"""
Of a row: calls of what the ranks call together; wall seconds, and how
often the program was looked at in them. The seconds consist of those in which it waited
for the device, and by what it did otherwise (``held`` is when nothing of the process
ran although it was due). Of all these its thread waited for a processor in those
``starved``. Then device seconds, estimated from samples, of what the ranks call
together and of other programs, and in how many of the wall seconds the former are
known. Last, those in which the program was certainly ahead of its device: it had
dispatched a call of what the ranks call together, and the device had not finished it;
and those in which it was certainly behind: the device had finished what was dispatched
last.
"""

MOST_ROWS = 64
"""Of a rank; an agent keeps fewer."""
