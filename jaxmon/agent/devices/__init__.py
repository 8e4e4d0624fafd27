"""Who the devices are, and what their driver says of them."""
