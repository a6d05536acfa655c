"""The report's charts, each made of runs."""
