"""The Open Inference Protocol (`inference.GRPCInferenceService`), in a descriptor pool of its own.

Other clients of the protocol bring stubs that define the same names: in one pool they would clash.
"""
