"""Figures of the training loop in the experiment tracker of the program."""
