"""What a process, its container and its host use."""
