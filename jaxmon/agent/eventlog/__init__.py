"""The agent's events as records of `logging`, and by OTLP."""
