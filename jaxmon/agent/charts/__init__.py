"""How a run went: numbers at moments, and how times vary, for the report on it."""
