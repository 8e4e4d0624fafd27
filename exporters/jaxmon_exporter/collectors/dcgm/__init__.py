"""The page of a dcgm-exporter on this host."""
