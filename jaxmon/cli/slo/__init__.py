"""``jaxmon slo``: how the objectives fared."""
