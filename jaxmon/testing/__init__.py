"""
Helpers for tests of programs that use JAX: budgets, and a plugin for pytest.

`jaxmon.budget` bounds what a block may compile, transfer and keep; the plugin does
the same for tests that are marked. See `docs/testing.md`.
"""
