"""Networks in PyTorch, the only definition in the project: training fits them, export traces them.

May import nothing of this package; everything else here and `triptych_export` may import it.
"""
