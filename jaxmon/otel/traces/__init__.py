"""Spans of requests and compiles; all but `spans` is loaded only if traces are on."""
