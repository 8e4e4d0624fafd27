"""What processes, hosts and jobs report, as typed records: each fact once."""
