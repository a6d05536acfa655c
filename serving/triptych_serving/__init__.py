"""The server: bundles in, answers out. No torch here, and ONNX Runtime in session.py alone."""

import logging

# A library's errors are raised; its log is for those who ask for one.
logging.getLogger(__name__).addHandler(logging.NullHandler())
