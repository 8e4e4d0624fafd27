"""What tests of jobs share: made-up ranks, and real processes with their sidecars."""
