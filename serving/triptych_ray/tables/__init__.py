"""Translate tables of texts on a Ray cluster: Parquet, JSON lines and plain lines, one output file per input file.

The driver divides files into chunks of rows. Ray Data passes them to engines, one per device. An engine writes the translation
of a chunk to a part file, completely or not at all. When all parts of a file exist, they become the output file, again
completely or not at all. So a chunk that is translated twice, because a worker died and Ray tried again, changes nothing, and a
job that is started again continues with the missing chunks.
"""
