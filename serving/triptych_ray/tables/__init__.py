"""Tables of texts, translated on a Ray cluster: Parquet, JSON lines and plain lines, one output file for each input file.

The driver cuts files into chunks of rows; Ray Data hands them to engines, one on each device; an engine writes what it made of
a chunk to a part file of its own, whole or not at all. Once a file's parts are all there, they become the output file, again
whole or not at all. So a chunk that is done twice, because a worker died and Ray tried again, changes nothing, and a job that
starts again goes on with the chunks that are missing.
"""
