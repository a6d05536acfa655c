"""gRPC services: conversion of wire messages to plain values and back, and the calls that every protocol shares.

Imports `rpc`, `response_cache`, `models` and `repository`; imported by `gateway`, `wiring` and the server.
"""
