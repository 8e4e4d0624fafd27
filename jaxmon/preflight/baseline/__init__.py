"""What a program's functions cost to compile and run, recorded and compared."""
