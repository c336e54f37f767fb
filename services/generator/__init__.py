"""The generator: writes queries, answers and corrections from the passages it is given and from nothing else."""
