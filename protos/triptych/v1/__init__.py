"""Version 1 of the contract. `*_pb2` has the messages of each `.proto` file, `*_pb2_grpc` its services.

The stubs are generated: `python protos/generate.py` in the source tree writes them.
"""
