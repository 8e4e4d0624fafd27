"""Sources of jitted functions, for the finder of mistakes in them."""
