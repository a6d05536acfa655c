"""Translation models: preprocessing, decoding options, scoring, postprocessing.

Imported by `repository` and `services`.
"""
