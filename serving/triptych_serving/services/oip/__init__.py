"""inference.GRPCInferenceService, the Open Inference Protocol v2: conversion of tensors to plain values and back."""
