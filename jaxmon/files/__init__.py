"""Files: bounded where they are read, whole where they are written."""
