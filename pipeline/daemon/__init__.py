"""`gemmed run`: the loop around the chain, its status, recorder and housekeeping."""
