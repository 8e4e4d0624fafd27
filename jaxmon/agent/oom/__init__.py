"""Reports that are written when memory runs out."""
