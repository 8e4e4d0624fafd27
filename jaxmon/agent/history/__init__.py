"""How long functions and steps take, against their own past."""
