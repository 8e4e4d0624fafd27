"""
What jaxmon exports, pushed by the OpenTelemetry protocol (OTLP), and its traces.

`environment` reads the standard variables, `identity` says who we are, `points` turns
families into data points, `pipes` connects them to the SDK's own exporters, and
`pusher` is the thread. Only `pipes` and `points` import the SDK, when they are used;
`instrumentor` is loaded by ``opentelemetry-instrument``. Spans are in `traces`.
"""
