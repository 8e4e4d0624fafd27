"""The server that answers one request per connection, beside the one it replaces."""
