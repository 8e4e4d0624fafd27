"""Model FLOPs utilization: what calls compute, and what the devices could."""
