"""The agents of this host, read over their sockets."""
