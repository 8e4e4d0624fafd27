"""How the objectives fared in a week: `queries` to Prometheus, and the `report`."""
