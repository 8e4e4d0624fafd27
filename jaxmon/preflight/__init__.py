"""What developers use before production; commands load it, no agent or sidecar does."""
