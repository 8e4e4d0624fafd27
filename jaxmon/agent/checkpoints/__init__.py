"""Checkpoints that Orbax saves and restores, without marks."""
