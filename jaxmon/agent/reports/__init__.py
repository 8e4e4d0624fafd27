"""What an agent knows, as pages, reports and files."""
