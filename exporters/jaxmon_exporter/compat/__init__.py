"""The names that other exporters have for our figures."""
