"""Sessions of ONNX Runtime, devices, their memory, and facts about this process and its CPUs.

Imports nothing but `errors`; every other package may import it.
"""
