"""Checks of jaxmon's figures on a real accelerator, against other measurements."""
