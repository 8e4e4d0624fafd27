"""What compiled programs are made of, by line of source."""
