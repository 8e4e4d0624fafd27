"""The ledger of time: what the wall time of a process goes into, by sampling."""
