"""Measures servers: MLPerf's scenarios and closed loops against Triptych and every server of the Open Inference Protocol."""
