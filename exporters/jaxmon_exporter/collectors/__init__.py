"""Where figures come from, one module per source."""
