"""Files: read with a size limit, written atomically."""
