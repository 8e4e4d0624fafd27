"""Debug endpoints, reports and files of an agent."""
