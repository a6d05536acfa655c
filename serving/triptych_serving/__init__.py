"""The gRPC server. Imports no torch; only `runtime.session` imports ONNX Runtime.

Imported by `triptych_cli`, `triptych_embedded`, `triptych_ray` and `triptych_export`.
"""

import logging

# A library does not log by default.
logging.getLogger(__name__).addHandler(logging.NullHandler())
