"""Translation models: preprocessing, decoding options, scoring, postprocessing."""
