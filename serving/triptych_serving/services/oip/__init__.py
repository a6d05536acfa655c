"""inference.GRPCInferenceService, the Open Inference Protocol v2: tensors to plain values and back."""
